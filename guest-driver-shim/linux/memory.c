// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Memory that the device knows: the context tables, and memory regions with their keys. */
#include <linux/dma-mapping.h>

#include "rnic.h"

int rnic_dma_alloc(struct rnic_dev *dev, struct rnic_dma *dma, size_t bytes)
{
	/* Lists are read in lines of 64 bytes; a whole page costs nothing more. */
	dma->bytes = PAGE_ALIGN(bytes);
	dma->cpu = dma_alloc_coherent(&dev->pdev->dev, dma->bytes, &dma->iova, GFP_KERNEL | __GFP_NOWARN);
	return dma->cpu ? 0 : -ENOMEM;
}

void rnic_dma_free(struct rnic_dev *dev, struct rnic_dma *dma)
{
	if (dma->cpu)
		dma_free_coherent(&dev->pdev->dev, dma->bytes, dma->cpu, dma->iova);
	dma->cpu = NULL;
}

struct rnic_page_list_fields rnic_one_run(dma_addr_t iova)
{
	return (struct rnic_page_list_fields){ .root = cpu_to_le64(iova), .page_shift = PAGE_SHIFT };
}

static int set_table(struct rnic_dev *dev, struct rnic_dma *table, u8 kind, u8 log_entries, __le16 entry_bytes)
{
	struct rnic_set_table body = { .kind = kind, .log_entries = log_entries };
	int err = rnic_dma_alloc(dev, table, (size_t)le16_to_cpu(entry_bytes) << log_entries);

	if (err)
		return err;
	body.pages = rnic_one_run(table->iova);
	err = rnic_command(dev, RNIC_COMMAND_OPCODE_SET_TABLE, &body, sizeof(body), NULL, 0);
	/* A refused table was not taken; one that was never answered is freed after the reset. */
	return err;
}

int rnic_tables_create(struct rnic_dev *dev)
{
	int err;

	err = set_table(dev, &dev->qp_table, RNIC_TABLE_QP, dev->log_qps, dev->limits.qp_context_bytes);
	if (!err)
		err = set_table(dev, &dev->cq_table, RNIC_TABLE_CQ, dev->log_cqs, dev->limits.cq_context_bytes);
	if (!err && dev->limits.srq_context_bytes)
		err = set_table(dev, &dev->srq_table, RNIC_TABLE_SRQ, dev->log_srqs, dev->limits.srq_context_bytes);
	if (!err)
		err = set_table(dev, &dev->key_table, RNIC_TABLE_KEY, dev->log_keys, dev->limits.key_context_bytes);
	/* A device of interface 1.0 knows neither READ nor atomics. */
	if (!err && dev->limits.rd_atomic_context_bytes)
		err = set_table(dev, &dev->rd_atomic_table, RNIC_TABLE_RD_ATOMIC, dev->log_qps,
				dev->limits.rd_atomic_context_bytes);
	return err;
}

/* After the device's reset. */
void rnic_tables_destroy(struct rnic_dev *dev)
{
	rnic_dma_free(dev, &dev->rd_atomic_table);
	rnic_dma_free(dev, &dev->key_table);
	rnic_dma_free(dev, &dev->srq_table);
	rnic_dma_free(dev, &dev->cq_table);
	rnic_dma_free(dev, &dev->qp_table);
}

/* Rights as the device has them. */
u32 rnic_device_access(int access)
{
	return (access & (RNIC_ACCESS_LOCAL_WRITE | RNIC_ACCESS_REMOTE_WRITE | RNIC_ACCESS_REMOTE_READ |
			  RNIC_ACCESS_REMOTE_ATOMIC)) |
	       (access & IB_ACCESS_MW_BIND ? RNIC_ACCESS_MW_BIND : 0) |
	       (access & IB_ZERO_BASED ? RNIC_ACCESS_ZERO_BASED : 0) |
	       (access & IB_ACCESS_FLUSH_GLOBAL ? RNIC_ACCESS_FLUSH_GLOBAL : 0) |
	       (access & IB_ACCESS_FLUSH_PERSISTENT ? RNIC_ACCESS_FLUSH_PERSISTENT : 0);
}

/* Rights of a queue pair, back from the device. */
int rnic_verbs_access(u32 access)
{
	return (access & (RNIC_ACCESS_LOCAL_WRITE | RNIC_ACCESS_REMOTE_WRITE | RNIC_ACCESS_REMOTE_READ |
			  RNIC_ACCESS_REMOTE_ATOMIC)) |
	       (access & RNIC_ACCESS_FLUSH_GLOBAL ? IB_ACCESS_FLUSH_GLOBAL : 0) |
	       (access & RNIC_ACCESS_FLUSH_PERSISTENT ? IB_ACCESS_FLUSH_PERSISTENT : 0);
}

static bool is_allowed(const struct rnic_dev *dev, int access)
{
	return !(access & ~(RNIC_MR_ACCESS | IB_ACCESS_OPTIONAL)) &&
	       (!(access & IB_ACCESS_MW_BIND) || dev->features & RNIC_FEATURE_WINDOW) &&
	       (!(access & IB_ZERO_BASED) || dev->features & RNIC_FEATURE_ZERO_BASED) &&
	       (!(access & RNIC_FLUSH_ACCESS) || dev->features & RNIC_FEATURE_FLUSH);
}

/* Another low byte at each use of an index, so that an old key is not valid again. */
static u32 next_key(struct rnic_dev *dev, u32 key)
{
	u32 next = (key & ~0xffU) | ++dev->key_byte;

	return next != key ? next : (key & ~0xffU) | ++dev->key_byte;
}

int rnic_choose_index(struct rnic_dev *dev, void *owner, u32 *index)
{
	int err = xa_alloc_cyclic(&dev->keys, index, owner, XA_LIMIT(1, BIT(dev->log_keys) - 1), &dev->next_key,
				  GFP_KERNEL);

	return err == -EBUSY ? -ENOMEM : min(err, 0);
}

/* Chooses a key and tells the device of the region. */
static int register_key(struct rnic_dev *dev, struct rnic_mr *mr, u32 pdn, int access, u64 start, u64 bytes,
			const struct rnic_page_list_fields *pages)
{
	struct rnic_register_key body = {};
	u32 index;
	int err;

	err = rnic_choose_index(dev, mr, &index);
	if (err)
		return err;
	mr->key = next_key(dev, index << 8);
	mr->access = access;
	body.key = cpu_to_le32(mr->key);
	body.pdn = cpu_to_le32(pdn);
	body.access = cpu_to_le32(rnic_device_access(access));
	body.start = cpu_to_le64(start);
	body.length_bytes = cpu_to_le64(bytes);
	body.pages = *pages;
	err = rnic_command(dev, RNIC_COMMAND_OPCODE_REGISTER_KEY, &body, sizeof(body), NULL, 0);
	if (err) {
		xa_erase(&dev->keys, index);
		return err;
	}
	mr->ibmr.lkey = mr->key;
	mr->ibmr.rkey = mr->key;
	mr->ibmr.length = bytes;
	mr->ibmr.iova = start;
	return 0;
}

/* All memory, under the addresses that the DMA interface hands out. */
struct ib_mr *rnic_get_dma_mr(struct ib_pd *ibpd, int access)
{
	struct rnic_page_list_fields pages = rnic_one_run(0);
	struct rnic_dev *dev = to_rnic(ibpd->device);
	struct rnic_mr *mr;
	int err;

	/*
	 * With a local DMA key ib_core asks for the remote rights alone, and
	 * the device grants none without the local one.
	 */
	if (access & (IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC))
		access |= IB_ACCESS_LOCAL_WRITE;
	if (!is_allowed(dev, access))
		return ERR_PTR(-EOPNOTSUPP);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	err = register_key(dev, mr, to_rnic_pd(ibpd)->pdn, access, 0, S64_MAX, &pages);
	if (err) {
		kfree(mr);
		return ERR_PTR(err);
	}
	return &mr->ibmr;
}

#ifdef RNIC_HAS_DMAH
struct ib_mr *rnic_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 address, int access,
			       struct ib_dmah *dmah, struct ib_udata *udata)
#else
struct ib_mr *rnic_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 address, int access,
			       struct ib_udata *udata)
#endif
{
	struct rnic_dev *dev = to_rnic(ibpd->device);
	struct rnic_mr *mr;
	int err;

#ifdef RNIC_HAS_DMAH
	if (dmah)
		return ERR_PTR(-EOPNOTSUPP);
#endif
	if (!is_allowed(dev, access))
		return ERR_PTR(-EOPNOTSUPP);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	err = rnic_user_memory_get(dev, &mr->memory, start, length, address, access);
	if (err)
		goto free;
	err = register_key(dev, mr, to_rnic_pd(ibpd)->pdn, access, address, length, &mr->memory.pages.fields);
	if (err)
		goto put;
	return &mr->ibmr;

put:
	rnic_user_memory_put(dev, &mr->memory);
free:
	kfree(mr);
	return ERR_PTR(err);
}

int rnic_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct rnic_dev *dev = to_rnic(ibmr->device);
	struct rnic_mr *mr = to_rnic_mr(ibmr);
	int err = rnic_command_destroy(dev, RNIC_COMMAND_OPCODE_DEREGISTER_KEY, mr->key);

	if (err)
		return err;
	xa_erase(&dev->keys, mr->key >> 8);
	rnic_user_memory_put(dev, &mr->memory);
	rnic_dma_free(dev, &mr->fast_list);
	kfree(mr);
	return 0;
}
