// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The rings of kernel users: their memory, what stands in them, and what a completion takes out again. */
#include "rnic.h"

u16 rnic_room(const struct rnic_work_queue *queue)
{
	return BIT(queue->log_entries) - (u16)(queue->producer - queue->consumer);
}

u32 rnic_position(const struct rnic_work_queue *queue, u16 index)
{
	return index & (BIT(queue->log_entries) - 1);
}

static int prepare(struct rnic_dev *dev, struct rnic_work_queue *queue, struct rnic_dma *memory, u32 entries,
		   u32 entry_bytes, u8 log_limit)
{
	spin_lock_init(&queue->lock);
	queue->log_entries = order_base_2(max_t(u32, entries, 1));
	if (queue->log_entries > log_limit)
		return -EINVAL;
	queue->wr_ids = kvcalloc(BIT(queue->log_entries), sizeof(*queue->wr_ids), GFP_KERNEL);
	if (!queue->wr_ids)
		return -ENOMEM;
	if (rnic_dma_alloc(dev, memory, (size_t)entry_bytes << queue->log_entries))
		return -ENOMEM;
	queue->ring = memory->cpu;
	return 0;
}

int rnic_work_queues_create(struct rnic_dev *dev, struct rnic_qp *qp)
{
	struct ib_qp_cap *cap = &qp->cap;
	u32 head = 1 + (rnic_is_datagram(qp) ? RNIC_DATAGRAM_SEGMENTS : 1);
	u32 inline_segments, sge, segments;
	int err;

	sge = max_t(u32, cap->max_send_sge, 1);
	inline_segments = DIV_ROUND_UP(cap->max_inline_data, RNIC_WQE_SEGMENT_BYTES);
	/* Behind control and remote segment, or address; an atomic has one more, and one element. */
	segments = max(head + max(sge, inline_segments), 4U);
	err = prepare(dev, &qp->sq, &qp->sq_memory, cap->max_send_wr * rnic_slots_of(segments), RNIC_WQE_SLOT_BYTES,
		      dev->limits.log_sq_slots);
	if (err)
		return err;
	qp->sq.slots = kvcalloc(BIT(qp->sq.log_entries), sizeof(*qp->sq.slots), GFP_KERNEL);
	if (!qp->sq.slots)
		return -ENOMEM;
	qp->sq.max_sge = sge;
	if (qp->ibqp.srq)
		return 0;
	qp->rq.log_stride = order_base_2(max_t(u32, cap->max_recv_sge, 1));
	qp->rq.max_sge = max_t(u32, cap->max_recv_sge, 1);
	return prepare(dev, &qp->rq, &qp->rq_memory, cap->max_recv_wr, RNIC_WQE_SEGMENT_BYTES << qp->rq.log_stride,
		       dev->limits.log_rq_entries);
}

void rnic_work_queues_destroy(struct rnic_dev *dev, struct rnic_qp *qp)
{
	rnic_dma_free(dev, &qp->sq_memory);
	rnic_dma_free(dev, &qp->rq_memory);
	kvfree(qp->sq.wr_ids);
	kvfree(qp->sq.slots);
	kvfree(qp->rq.wr_ids);
}

void rnic_work_queues_reset(struct rnic_qp *qp)
{
	qp->sq.producer = 0;
	qp->sq.consumer = 0;
	qp->rq.producer = 0;
	qp->rq.consumer = 0;
}

void rnic_ring_doorbell(struct rnic_qp *qp, u32 offset, u16 producer)
{
	struct rnic_dev *dev = to_rnic(qp->ibqp.device);

	/* writeq orders the ring before the doorbell. */
	if (!READ_ONCE(dev->dead))
		writeq((u64)producer << 32 | (u64)qp->qpn << 8, dev->doorbells + offset);
}

static const enum ib_wc_opcode opcodes[] = {
	[0] = IB_WC_SEND,
	[RNIC_COMPLETION_SEND] = IB_WC_SEND,
	[RNIC_COMPLETION_SEND_IMM] = IB_WC_SEND,
	[3] = IB_WC_SEND,
	[RNIC_COMPLETION_WRITE] = IB_WC_RDMA_WRITE,
	[RNIC_COMPLETION_WRITE_IMM] = IB_WC_RDMA_WRITE,
	[6] = IB_WC_SEND,
	[7] = IB_WC_SEND,
	[RNIC_COMPLETION_READ] = IB_WC_RDMA_READ,
	[RNIC_COMPLETION_FLUSH] = IB_WC_FLUSH,
	[RNIC_COMPLETION_CMP_SWAP] = IB_WC_COMP_SWAP,
	[RNIC_COMPLETION_FETCH_ADD] = IB_WC_FETCH_ADD,
	[RNIC_COMPLETION_ATOMIC_WRITE] = IB_WC_ATOMIC_WRITE,
	[13] = IB_WC_SEND,
	[14] = IB_WC_SEND,
	[15] = IB_WC_SEND,
	[RNIC_COMPLETION_LOCAL_INV] = IB_WC_LOCAL_INV,
	[RNIC_COMPLETION_REG_MR] = IB_WC_REG_MR,
};

/* What a completion retires: of sends everything up to it, unsignaled ones included. False: it is none of ours. */
static bool retire_sends(struct rnic_work_queue *queue, u16 index, u64 *wr_id)
{
	u32 at;

	while (queue->consumer != queue->producer) {
		at = rnic_position(queue, queue->consumer);
		*wr_id = queue->wr_ids[at];
		queue->consumer += queue->slots[at];
		if (at == rnic_position(queue, index))
			return true;
	}
	return false;
}

bool rnic_work_completed(struct rnic_qp *qp, const struct rnic_cqe *cqe, struct ib_wc *wc)
{
	u16 index = le16_to_cpu(cqe->wqe_index);
	bool known = false;

	if (!qp->sq.ring)
		return false;
	if (cqe->opcode & RNIC_COMPLETION_RECV && qp->ibqp.srq) {
		wc->wr_id = rnic_srq_free_slot(to_rnic_srq(qp->ibqp.srq), index);
		wc->opcode = cqe->opcode == RNIC_COMPLETION_RECV ? IB_WC_RECV : IB_WC_RECV_RDMA_WITH_IMM;
		return le16_to_cpu(cqe->flags) & RNIC_CQE_SRQ;
	}
	if (cqe->opcode & RNIC_COMPLETION_RECV) {
		spin_lock(&qp->rq.lock);
		if (qp->rq.consumer != qp->rq.producer) {
			wc->wr_id = qp->rq.wr_ids[rnic_position(&qp->rq, index)];
			qp->rq.consumer = index + 1;
			known = true;
		}
		spin_unlock(&qp->rq.lock);
		wc->opcode = cqe->opcode == RNIC_COMPLETION_RECV ? IB_WC_RECV : IB_WC_RECV_RDMA_WITH_IMM;
		return known;
	}
	spin_lock(&qp->sq.lock);
	known = retire_sends(&qp->sq, index, &wc->wr_id);
	spin_unlock(&qp->sq.lock);
	wc->opcode = cqe->opcode < ARRAY_SIZE(opcodes) ? opcodes[cqe->opcode] : IB_WC_SEND;
	return known;
}
