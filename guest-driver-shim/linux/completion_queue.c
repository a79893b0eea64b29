// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Completion queues of processes and of the kernel. */
#include "rnic.h"

static int create_in_device(struct rnic_dev *dev, struct rnic_cq *cq, u32 doorbell_page,
			    const struct rnic_page_list_fields *pages, u64 record)
{
	struct rnic_create_cq body = {};

	body.cqn = cpu_to_le32(cq->cqn);
	body.eqn = cpu_to_le32(cq->eq->eqn);
	body.doorbell_page = cpu_to_le32(doorbell_page);
	body.log_entries = cq->log_entries;
	body.pages = *pages;
	body.consumer_record = cpu_to_le64(record);
	return rnic_command(dev, RNIC_COMMAND_OPCODE_CREATE_CQ, &body, sizeof(body), NULL, 0);
}

static void let_go(struct rnic_dev *dev, struct rnic_cq *cq)
{
	rnic_user_memory_put(dev, &cq->ring);
	if (cq->record_umem)
		ib_umem_release(cq->record_umem);
	cq->record_umem = NULL;
	rnic_dma_free(dev, &cq->memory);
}

static int create_for_process(struct rnic_dev *dev, struct rnic_cq *cq, u32 entries, struct rnic_ucontext *context,
			      struct ib_udata *udata)
{
	struct rnic_uresp_create_cq answer = { .cqn = cq->cqn };
	struct rnic_ureq_create_cq request;
	u64 record;
	int err;

	if (udata->inlen < sizeof(request))
		return -EINVAL;
	err = ib_copy_from_udata(&request, udata, sizeof(request));
	if (err)
		return err;
	if (request.log_entries > dev->limits.log_cq_entries || BIT(request.log_entries) < entries ||
	    memchr_inv(request.reserved, 0, sizeof(request.reserved)))
		return -EINVAL;
	/* The record stands in one page. */
	if (!IS_ALIGNED(request.record_address, sizeof(struct rnic_consumer_record)))
		return -EINVAL;
	cq->log_entries = request.log_entries;
	err = rnic_user_ring_get(dev, &cq->ring, request.ring_address,
				 sizeof(struct rnic_cqe) << request.log_entries);
	if (err)
		return err;
	cq->record_umem = rnic_umem_get(&dev->ibdev, request.record_address, sizeof(struct rnic_consumer_record),
					IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(cq->record_umem)) {
		err = PTR_ERR(cq->record_umem);
		cq->record_umem = NULL;
		return err;
	}
	record = sg_dma_address(cq->record_umem->sgt_append.sgt.sgl) + ib_umem_offset(cq->record_umem);
	err = create_in_device(dev, cq, context->doorbell_page, &cq->ring.pages.fields, record);
	if (err)
		return err;
	err = ib_copy_to_udata(udata, &answer, min(sizeof(answer), udata->outlen));
	if (err)
		rnic_command_destroy(dev, RNIC_COMMAND_OPCODE_DESTROY_CQ, cq->cqn);
	return err;
}

static int create_for_kernel(struct rnic_dev *dev, struct rnic_cq *cq, u32 entries)
{
	size_t ring_bytes = sizeof(struct rnic_cqe) << order_base_2(entries);
	struct rnic_page_list_fields pages;
	int err;

	cq->log_entries = order_base_2(entries);
	/* The record behind the ring, in a line of its own. */
	err = rnic_dma_alloc(dev, &cq->memory, ring_bytes + SMP_CACHE_BYTES);
	if (err)
		return err;
	cq->cqes = cq->memory.cpu;
	cq->record = cq->memory.cpu + ring_bytes;
	pages = rnic_one_run(cq->memory.iova);
	return create_in_device(dev, cq, 0, &pages, cq->memory.iova + ring_bytes);
}

int rnic_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr, struct uverbs_attr_bundle *attrs)
{
	struct ib_udata *udata = attrs ? &attrs->driver_udata : NULL;
	struct rnic_ucontext *context =
		rdma_udata_to_drv_context(udata, struct rnic_ucontext, ibucontext);
	struct rnic_dev *dev = to_rnic(ibcq->device);
	struct rnic_cq *cq = to_rnic_cq(ibcq);
	int err;

	if (attr->flags)
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > BIT(dev->limits.log_cq_entries))
		return -EINVAL;
	spin_lock_init(&cq->lock);
	cq->eq = rnic_completion_eq(dev, attr->comp_vector);
	err = xa_alloc_cyclic(&dev->cqs, &cq->cqn, cq, XA_LIMIT(1, BIT(dev->log_cqs) - 1), &dev->next_cqn, GFP_KERNEL);
	if (err < 0)
		return err == -EBUSY ? -ENOMEM : err;
	err = udata ? create_for_process(dev, cq, attr->cqe, context, udata) : create_for_kernel(dev, cq, attr->cqe);
	if (err) {
		xa_erase(&dev->cqs, cq->cqn);
		let_go(dev, cq);
		return err;
	}
	ibcq->cqe = BIT(cq->log_entries);
	return 0;
}

int rnic_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct rnic_dev *dev = to_rnic(ibcq->device);
	struct rnic_cq *cq = to_rnic_cq(ibcq);
	int err = rnic_command_destroy(dev, RNIC_COMMAND_OPCODE_DESTROY_CQ, cq->cqn);

	if (err)
		return err;
	/* Its last events, before the number can be another's; then nobody is left who looked it up. */
	rnic_eq_drain(cq->eq);
	xa_erase(&dev->cqs, cq->cqn);
	rnic_eq_drain(cq->eq);
	let_go(dev, cq);
	return 0;
}

static const enum ib_wc_status statuses[] = {
	[RNIC_STATUS_OF_COMPLETION_SUCCESS] = IB_WC_SUCCESS,
	[RNIC_STATUS_OF_COMPLETION_LOC_LEN_ERR] = IB_WC_LOC_LEN_ERR,
	[RNIC_STATUS_OF_COMPLETION_LOC_QP_OP_ERR] = IB_WC_LOC_QP_OP_ERR,
	[3] = IB_WC_GENERAL_ERR,
	[RNIC_STATUS_OF_COMPLETION_LOC_PROT_ERR] = IB_WC_LOC_PROT_ERR,
	[RNIC_STATUS_OF_COMPLETION_WR_FLUSH_ERR] = IB_WC_WR_FLUSH_ERR,
	[RNIC_STATUS_OF_COMPLETION_MW_BIND_ERR] = IB_WC_MW_BIND_ERR,
	[RNIC_STATUS_OF_COMPLETION_BAD_RESP_ERR] = IB_WC_BAD_RESP_ERR,
	[RNIC_STATUS_OF_COMPLETION_LOC_ACCESS_ERR] = IB_WC_LOC_ACCESS_ERR,
	[RNIC_STATUS_OF_COMPLETION_REM_INV_REQ_ERR] = IB_WC_REM_INV_REQ_ERR,
	[RNIC_STATUS_OF_COMPLETION_REM_ACCESS_ERR] = IB_WC_REM_ACCESS_ERR,
	[RNIC_STATUS_OF_COMPLETION_REM_OP_ERR] = IB_WC_REM_OP_ERR,
	[RNIC_STATUS_OF_COMPLETION_RETRY_EXC_ERR] = IB_WC_RETRY_EXC_ERR,
	[RNIC_STATUS_OF_COMPLETION_RNR_RETRY_EXC_ERR] = IB_WC_RNR_RETRY_EXC_ERR,
};

static bool is_new(const struct rnic_cq *cq, const struct rnic_cqe *cqe)
{
	return (le32_to_cpu(READ_ONCE(cqe->phase)) & RNIC_CQE_PHASE) == rnic_phase(cq->consumer, cq->log_entries);
}

static const struct rnic_cqe *at_consumer(const struct rnic_cq *cq)
{
	return &cq->cqes[cq->consumer & (BIT(cq->log_entries) - 1)];
}

/* Who sent a datagram, for those who answer it. */
static void take_origin(const struct rnic_cqe *cqe, struct ib_wc *wc)
{
	u16 flags = le16_to_cpu(cqe->flags);

	if (flags & RNIC_CQE_GRH) {
		wc->wc_flags |= IB_WC_GRH | IB_WC_WITH_NETWORK_HDR_TYPE;
		wc->network_hdr_type =
			cqe->network_type == RNIC_NETWORK_IPV4 ? RDMA_NETWORK_IPV4 : RDMA_NETWORK_IPV6;
		wc->pkey_index = le16_to_cpu(cqe->pkey_index);
	}
	if (flags & RNIC_CQE_WITH_SMAC) {
		wc->wc_flags |= IB_WC_WITH_SMAC;
		ether_addr_copy(wc->smac, cqe->source_mac);
	}
	if (flags & RNIC_CQE_WITH_VLAN) {
		wc->wc_flags |= IB_WC_WITH_VLAN;
		wc->vlan_id = le16_to_cpu(cqe->vlan_id);
		wc->sl = cqe->service_level;
	}
}

/* One completion of a queue pair that still exists; false when the entry told of none. */
static bool take(struct rnic_dev *dev, const struct rnic_cqe *cqe, struct ib_wc *wc)
{
	struct rnic_qp *qp = xa_load(&dev->qps, le32_to_cpu(cqe->qpn));

	memset(wc, 0, sizeof(*wc));
	if (!qp || !rnic_work_completed(qp, cqe, wc))
		return false;
	wc->qp = &qp->ibqp;
	wc->status = cqe->status < ARRAY_SIZE(statuses) ? statuses[cqe->status] : IB_WC_GENERAL_ERR;
	wc->vendor_err = le32_to_cpu(cqe->vendor_err);
	wc->byte_len = le32_to_cpu(cqe->byte_len);
	wc->src_qp = le32_to_cpu(cqe->src_qpn);
	wc->port_num = RNIC_PORT;
	if (le16_to_cpu(cqe->flags) & RNIC_CQE_WITH_IMM) {
		wc->wc_flags |= IB_WC_WITH_IMM;
		wc->ex.imm_data = cpu_to_be32(le32_to_cpu(cqe->immediate));
	}
	if (le16_to_cpu(cqe->flags) & RNIC_CQE_WITH_INV) {
		wc->wc_flags |= IB_WC_WITH_INVALIDATE;
		wc->ex.invalidate_rkey = le32_to_cpu(cqe->immediate);
	}
	if (wc->status == IB_WC_SUCCESS)
		take_origin(cqe, wc);
	return true;
}

int rnic_poll_cq(struct ib_cq *ibcq, int count, struct ib_wc *wc)
{
	struct rnic_dev *dev = to_rnic(ibcq->device);
	struct rnic_cq *cq = to_rnic_cq(ibcq);
	const struct rnic_cqe *cqe;
	unsigned long flags;
	u32 before;
	int found = 0;

	spin_lock_irqsave(&cq->lock, flags);
	before = cq->consumer;
	while (found < count) {
		cqe = at_consumer(cq);
		if (!is_new(cq, cqe))
			break;
		/* The phase was read first; the rest is not older. */
		dma_rmb();
		found += take(dev, cqe, &wc[found]);
		cq->consumer++;
	}
	if (cq->consumer != before) {
		/* The entries are read before the device may write them anew. */
		dma_wmb();
		WRITE_ONCE(cq->record->consumer_index, cpu_to_le32(cq->consumer));
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	return found;
}

int rnic_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct rnic_dev *dev = to_rnic(ibcq->device);
	struct rnic_cq *cq = to_rnic_cq(ibcq);
	unsigned long irq_flags;
	u64 value;
	int missed = 0;

	spin_lock_irqsave(&cq->lock, irq_flags);
	value = (u64)cq->consumer << 32 | cq->cqn << 8 | READ_ONCE(cq->arm_sequence);
	if ((flags & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED)
		value |= RNIC_CQ_ARM_SOLICITED;
	if (!READ_ONCE(dev->dead))
		writeq(value, dev->doorbells + RNIC_DB_CQ_ARM);
	if (flags & IB_CQ_REPORT_MISSED_EVENTS)
		missed = is_new(cq, at_consumer(cq));
	spin_unlock_irqrestore(&cq->lock, irq_flags);
	return missed;
}

/* A kernel queue pair goes, or begins anew: what stands in the queue about it is nobody's, its receives are free. */
void rnic_cq_forget(struct rnic_cq *cq, u32 qpn, struct ib_srq *srq)
{
	u32 mask = BIT(cq->log_entries) - 1, index;
	unsigned long flags;
	struct rnic_cqe *cqe;

	if (!cq->cqes)
		return;
	spin_lock_irqsave(&cq->lock, flags);
	for (index = cq->consumer; index - cq->consumer <= mask; index++) {
		cqe = &cq->cqes[index & mask];
		if ((le32_to_cpu(READ_ONCE(cqe->phase)) & RNIC_CQE_PHASE) != rnic_phase(index, cq->log_entries))
			break;
		/* The phase was read first. */
		dma_rmb();
		if (le32_to_cpu(cqe->qpn) != qpn)
			continue;
		if (srq && le16_to_cpu(cqe->flags) & RNIC_CQE_SRQ)
			rnic_srq_free_slot(to_rnic_srq(srq), le16_to_cpu(cqe->wqe_index));
		cqe->qpn = 0;
	}
	spin_unlock_irqrestore(&cq->lock, flags);
}
