// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Shared receive queues: their life, and posting by kernel users. A slot is free again when its completion is taken. */
#include "rnic.h"

static void let_go(struct rnic_dev *dev, struct rnic_srq *srq)
{
	rnic_user_memory_put(dev, &srq->wqe_ring);
	rnic_user_memory_put(dev, &srq->index_ring);
	rnic_dma_free(dev, &srq->wqes);
	rnic_dma_free(dev, &srq->indices);
	kvfree(srq->wr_ids);
	kvfree(srq->next_free);
}

static int create_in_device(struct rnic_dev *dev, struct rnic_srq *srq, u32 limit, struct rnic_create_srq *body)
{
	if (limit > U16_MAX)
		return -EINVAL;
	body->srqn = cpu_to_le32(srq->srqn);
	body->log_slots = srq->log_slots;
	body->log_stride = srq->log_stride;
	body->pdn = cpu_to_le32(to_rnic_pd(srq->ibsrq.pd)->pdn);
	body->limit = cpu_to_le16(limit);
	if (srq->ibsrq.srq_type == IB_SRQT_XRC) {
		body->flags |= RNIC_SRQ_XRC;
		body->cqn = cpu_to_le32(to_rnic_cq(srq->ibsrq.ext.cq)->cqn);
		body->xrc_domain = cpu_to_le32(to_rnic_xrcd(srq->ibsrq.ext.xrc.xrcd)->xrcdn);
	}
	return rnic_command(dev, RNIC_COMMAND_OPCODE_CREATE_SRQ, body, sizeof(*body), NULL, 0);
}

static int create_for_process(struct rnic_dev *dev, struct rnic_srq *srq, u32 limit, struct ib_udata *udata)
{
	struct rnic_ucontext *context = rdma_udata_to_drv_context(udata, struct rnic_ucontext, ibucontext);
	struct rnic_uresp_create_srq answer = { .srqn = srq->srqn };
	struct rnic_ureq_create_srq request;
	struct rnic_create_srq body = {};
	int err;

	if (udata->inlen < sizeof(request))
		return -EINVAL;
	err = ib_copy_from_udata(&request, udata, sizeof(request));
	if (err)
		return err;
	if (request.log_slots > dev->limits.log_srq_slots || request.log_stride > RNIC_MAX_LOG_RQ_STRIDE ||
	    memchr_inv(request.reserved, 0, sizeof(request.reserved)))
		return -EINVAL;
	srq->log_slots = request.log_slots;
	srq->log_stride = request.log_stride;
	err = rnic_user_ring_get(dev, &srq->wqe_ring, request.wqe_address,
				 (u64)RNIC_WQE_SEGMENT_BYTES << (request.log_slots + request.log_stride));
	if (!err)
		err = rnic_user_ring_get(dev, &srq->index_ring, request.index_address, 2ULL << request.log_slots);
	if (err)
		return err;
	body.doorbell_page = cpu_to_le32(context->doorbell_page);
	body.wqe_pages = srq->wqe_ring.pages.fields;
	body.index_pages = srq->index_ring.pages.fields;
	err = create_in_device(dev, srq, limit, &body);
	if (err)
		return err;
	err = ib_copy_to_udata(udata, &answer, min(sizeof(answer), udata->outlen));
	if (err)
		rnic_command_destroy(dev, RNIC_COMMAND_OPCODE_DESTROY_SRQ, srq->srqn);
	return err;
}

static int create_for_kernel(struct rnic_dev *dev, struct rnic_srq *srq, const struct ib_srq_attr *attr)
{
	struct rnic_create_srq body = { .flags = RNIC_SRQ_PRIVILEGED };
	u32 slot, slots;
	int err;

	srq->log_slots = order_base_2(max_t(u32, attr->max_wr, 1));
	srq->log_stride = order_base_2(max_t(u32, attr->max_sge, 1));
	slots = BIT(srq->log_slots);
	srq->wr_ids = kvcalloc(slots, sizeof(*srq->wr_ids), GFP_KERNEL);
	srq->next_free = kvcalloc(slots, sizeof(*srq->next_free), GFP_KERNEL);
	if (!srq->wr_ids || !srq->next_free)
		return -ENOMEM;
	for (slot = 0; slot < slots; slot++)
		srq->next_free[slot] = slot + 1;
	srq->free_slots = slots;
	err = rnic_dma_alloc(dev, &srq->wqes, (size_t)RNIC_WQE_SEGMENT_BYTES << (srq->log_slots + srq->log_stride));
	if (!err)
		err = rnic_dma_alloc(dev, &srq->indices, sizeof(__le16) << srq->log_slots);
	if (err)
		return err;
	body.wqe_pages = rnic_one_run(srq->wqes.iova);
	body.index_pages = rnic_one_run(srq->indices.iova);
	return create_in_device(dev, srq, attr->srq_limit, &body);
}

int rnic_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init, struct ib_udata *udata)
{
	struct rnic_dev *dev = to_rnic(ibsrq->device);
	struct rnic_srq *srq = to_rnic_srq(ibsrq);
	struct ib_srq_attr *attr = &init->attr;
	int err;

	/* The kernel's own queues are of the usual kind. */
	if (init->srq_type != IB_SRQT_BASIC &&
	    !(init->srq_type == IB_SRQT_XRC && udata && dev->features & RNIC_FEATURE_XRC))
		return -EOPNOTSUPP;
	if (!attr->max_wr || attr->max_wr > BIT(dev->limits.log_srq_slots) ||
	    attr->max_sge > dev->limits.max_receive_sge)
		return -EINVAL;
	spin_lock_init(&srq->lock);
	srq->max_sge = max_t(u32, attr->max_sge, 1);
	err = xa_alloc_cyclic(&dev->srqs, &srq->srqn, srq, XA_LIMIT(1, BIT(dev->log_srqs) - 1), &dev->next_srqn,
			      GFP_KERNEL);
	if (err < 0)
		return err == -EBUSY ? -ENOMEM : err;
	err = udata ? create_for_process(dev, srq, attr->srq_limit, udata) : create_for_kernel(dev, srq, attr);
	if (err) {
		xa_erase(&dev->srqs, srq->srqn);
		let_go(dev, srq);
		return err;
	}
	if (init->srq_type == IB_SRQT_XRC)
		ibsrq->ext.xrc.srq_num = srq->srqn;
	attr->max_wr = BIT(srq->log_slots);
	attr->max_sge = srq->max_sge;
	return 0;
}

int rnic_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	struct rnic_dev *dev = to_rnic(ibsrq->device);
	struct rnic_srq *srq = to_rnic_srq(ibsrq);
	int err = rnic_command_destroy(dev, RNIC_COMMAND_OPCODE_DESTROY_SRQ, srq->srqn);

	if (err)
		return err;
	/* Its last events, before the number can be another's; then nobody is left who looked it up. */
	rnic_eq_drain(&dev->eqs[RNIC_ASYNC_EQN]);
	xa_erase(&dev->srqs, srq->srqn);
	rnic_eq_drain(&dev->eqs[RNIC_ASYNC_EQN]);
	let_go(dev, srq);
	return 0;
}

int rnic_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	struct rnic_modify_srq body = { .srqn = cpu_to_le32(to_rnic_srq(ibsrq)->srqn) };

	if (mask & ~IB_SRQ_LIMIT)
		return -EOPNOTSUPP;
	if (!(mask & IB_SRQ_LIMIT))
		return 0;
	if (attr->srq_limit > BIT(to_rnic_srq(ibsrq)->log_slots))
		return -EINVAL;
	body.limit = cpu_to_le16(attr->srq_limit);
	return rnic_command(to_rnic(ibsrq->device), RNIC_COMMAND_OPCODE_MODIFY_SRQ, &body, sizeof(body), NULL, 0);
}

int rnic_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct rnic_srq *srq = to_rnic_srq(ibsrq);
	struct rnic_object_number object = { .number = cpu_to_le32(srq->srqn) };
	struct rnic_srq_state state;
	int err;

	err = rnic_command(to_rnic(ibsrq->device), RNIC_COMMAND_OPCODE_QUERY_SRQ, &object, sizeof(object), &state,
			   sizeof(state));
	if (err)
		return err;
	attr->max_wr = BIT(srq->log_slots);
	attr->max_sge = srq->max_sge;
	attr->srq_limit = le16_to_cpu(state.limit);
	return 0;
}

static int post_one(struct rnic_srq *srq, const struct ib_recv_wr *wr)
{
	__le16 *indices = srq->indices.cpu;
	u32 slot = srq->first_free;
	void *wqe;

	if (wr->num_sge > srq->max_sge)
		return -EINVAL;
	if (!srq->free_slots)
		return -ENOMEM;
	wqe = srq->wqes.cpu + (((size_t)slot * RNIC_WQE_SEGMENT_BYTES) << srq->log_stride);
	rnic_put_receive(wqe, srq->log_stride, wr);
	srq->first_free = srq->next_free[slot];
	srq->free_slots--;
	srq->wr_ids[slot] = wr->wr_id;
	indices[srq->producer & (BIT(srq->log_slots) - 1)] = cpu_to_le16(slot);
	srq->producer++;
	return 0;
}

int rnic_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	struct rnic_dev *dev = to_rnic(ibsrq->device);
	struct rnic_srq *srq = to_rnic_srq(ibsrq);
	unsigned long flags;
	u16 before;
	int err = 0;

	spin_lock_irqsave(&srq->lock, flags);
	before = srq->producer;
	for (; wr; wr = wr->next) {
		err = post_one(srq, wr);
		if (err) {
			*bad = wr;
			break;
		}
	}
	/* writeq orders slots and indices before the doorbell. */
	if (srq->producer != before && !READ_ONCE(dev->dead))
		writeq((u64)srq->producer << 32 | (u64)srq->srqn << 8, dev->doorbells + RNIC_DB_SRQ);
	spin_unlock_irqrestore(&srq->lock, flags);
	return err;
}

/* The slot's completion is taken, or is nobody's any more. */
u64 rnic_srq_free_slot(struct rnic_srq *srq, u16 slot)
{
	u64 wr_id = 0;

	if (slot >= BIT(srq->log_slots) || !srq->wr_ids)
		return 0;
	spin_lock(&srq->lock);
	wr_id = srq->wr_ids[slot];
	srq->next_free[slot] = srq->first_free;
	srq->first_free = slot;
	srq->free_slots++;
	spin_unlock(&srq->lock);
	return wr_id;
}
