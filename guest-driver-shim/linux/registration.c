// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Regions that change: registered again in place, given their memory by work requests, and windows on them. */
#include "rnic.h"

/* A list that is one piece of memory; more pages are another region. */
#define MAX_FAST_PAGES (16 * PAGE_SIZE / sizeof(__le64))

u32 rnic_max_fast_pages(const struct rnic_dev *dev)
{
	return min_t(u32, le32_to_cpu(dev->limits.max_fast_register_pages), MAX_FAST_PAGES);
}

/* Of a process' region. NULL: the same object, and the same keys, which peers may have been told. */
struct ib_mr *rnic_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start, u64 length, u64 address, int access,
				 struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct rnic_dev *dev = to_rnic(ibmr->device);
	struct rnic_register_key body = {};
	struct rnic_user_memory memory = {};
	struct rnic_mr *mr = to_rnic_mr(ibmr);
	int err;

	if (flags & ~(IB_MR_REREG_TRANS | IB_MR_REREG_PD | IB_MR_REREG_ACCESS) || !mr->memory.umem)
		return ERR_PTR(-EOPNOTSUPP);
	if (!(flags & IB_MR_REREG_ACCESS))
		access = mr->access;
	if (access & ~(RNIC_MR_ACCESS | IB_ACCESS_OPTIONAL))
		return ERR_PTR(-EOPNOTSUPP);
	/* Pages that were pinned to be read only have to be pinned anew to be written. */
	if (!(flags & IB_MR_REREG_TRANS) && ib_access_writable(access) && !mr->memory.umem->writable) {
		flags |= IB_MR_REREG_TRANS;
		start = mr->memory.umem->address;
		length = mr->memory.umem->length;
		address = ibmr->iova;
	}
	if (flags & IB_MR_REREG_TRANS) {
		err = rnic_user_memory_get(dev, &memory, start, length, address, access);
		if (err)
			return ERR_PTR(err);
		body.start = cpu_to_le64(address);
		body.length_bytes = cpu_to_le64(length);
		body.pages = memory.pages.fields;
	}
	static_assert(IB_MR_REREG_TRANS == RNIC_REREGISTER_TRANSLATION && IB_MR_REREG_PD == RNIC_REREGISTER_PD &&
		      IB_MR_REREG_ACCESS == RNIC_REREGISTER_ACCESS);
	body.key = cpu_to_le32(mr->key);
	body.changes = cpu_to_le32(flags);
	if (flags & IB_MR_REREG_PD)
		body.pdn = cpu_to_le32(to_rnic_pd(ibpd)->pdn);
	if (flags & IB_MR_REREG_ACCESS)
		body.access = cpu_to_le32(rnic_device_access(access));
	err = rnic_command(dev, RNIC_COMMAND_OPCODE_REREGISTER_KEY, &body, sizeof(body), NULL, 0);
	if (err) {
		rnic_user_memory_put(dev, &memory);
		return ERR_PTR(err);
	}
	if (flags & IB_MR_REREG_TRANS) {
		rnic_user_memory_put(dev, &mr->memory);
		mr->memory = memory;
		ibmr->iova = address;
		ibmr->length = length;
	}
	mr->access = access;
	return NULL;
}

/* A key that work requests give its memory. */
static int allocate(struct rnic_dev *dev, void *owner, struct ib_pd *pd, u8 kind, u32 max_pages, u32 *key)
{
	struct rnic_allocate_key body = { .kind = kind, .max_pages = cpu_to_le32(max_pages) };
	u32 index;
	int err;

	err = rnic_choose_index(dev, owner, &index);
	if (err)
		return err;
	*key = index << 8;
	body.key = cpu_to_le32(*key);
	body.pdn = cpu_to_le32(to_rnic_pd(pd)->pdn);
	err = rnic_command(dev, RNIC_COMMAND_OPCODE_ALLOCATE_KEY, &body, sizeof(body), NULL, 0);
	if (err)
		xa_erase(&dev->keys, index);
	return err;
}

struct ib_mr *rnic_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type, u32 max_pages)
{
	struct rnic_dev *dev = to_rnic(ibpd->device);
	struct rnic_mr *mr;
	int err;

	if (type != IB_MR_TYPE_MEM_REG)
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_pages || max_pages > rnic_max_fast_pages(dev))
		return ERR_PTR(-EINVAL);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	err = rnic_dma_alloc(dev, &mr->fast_list, max_pages * sizeof(__le64));
	if (err)
		goto free;
	mr->max_pages = max_pages;
	err = allocate(dev, mr, ibpd, RNIC_KEY_FAST_REGION, max_pages, &mr->key);
	if (err)
		goto free_list;
	mr->ibmr.lkey = mr->key;
	mr->ibmr.rkey = mr->key;
	return &mr->ibmr;

free_list:
	rnic_dma_free(dev, &mr->fast_list);
free:
	kfree(mr);
	return ERR_PTR(err);
}

static int append_page(struct ib_mr *ibmr, u64 address)
{
	struct rnic_mr *mr = to_rnic_mr(ibmr);
	__le64 *list = mr->fast_list.cpu;

	if (mr->pages >= mr->max_pages)
		return -ENOMEM;
	list[mr->pages++] = cpu_to_le64(address);
	return 0;
}

int rnic_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int entries, unsigned int *offset)
{
	to_rnic_mr(ibmr)->pages = 0;
	return ib_sg_to_pages(ibmr, sg, entries, offset, append_page);
}

int rnic_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata)
{
	u8 kind = ibmw->type == IB_MW_TYPE_1 ? RNIC_KEY_WINDOW_1 : RNIC_KEY_WINDOW_2B;
	struct rnic_dev *dev = to_rnic(ibmw->device);

	if (ibmw->type != IB_MW_TYPE_1 && ibmw->type != IB_MW_TYPE_2)
		return -EINVAL;
	return allocate(dev, ibmw, ibmw->pd, kind, 0, &ibmw->rkey);
}

int rnic_dealloc_mw(struct ib_mw *ibmw)
{
	struct rnic_dev *dev = to_rnic(ibmw->device);
	int err = rnic_command_destroy(dev, RNIC_COMMAND_OPCODE_DEREGISTER_KEY, ibmw->rkey);

	if (!err)
		xa_erase(&dev->keys, ibmw->rkey >> 8);
	return err;
}
