// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The data path of kernel users: work requests into rings, completions back to what was posted. */
#include "rnic.h"

#define SEGMENTS_A_SLOT (RNIC_WQE_SLOT_BYTES / RNIC_WQE_SEGMENT_BYTES)

/* A WQE as it is built: segments in a row, then copied into slots that may wrap around the ring's end. */
union wqe {
	struct rnic_control_segment control;
	struct rnic_remote_segment remote[RNIC_MAX_WQE_SLOTS * SEGMENTS_A_SLOT];
	struct rnic_atomic_segment atomic[RNIC_MAX_WQE_SLOTS * SEGMENTS_A_SLOT];
	struct rnic_data_segment data[RNIC_MAX_WQE_SLOTS * SEGMENTS_A_SLOT];
	u8 bytes[RNIC_MAX_WQE_SLOTS * RNIC_WQE_SLOT_BYTES];
};

static u32 slots_of(u32 segments)
{
	return DIV_ROUND_UP(segments, SEGMENTS_A_SLOT);
}

static u16 room(const struct rnic_work_queue *queue)
{
	return BIT(queue->log_entries) - (u16)(queue->producer - queue->consumer);
}

static u32 position(const struct rnic_work_queue *queue, u16 index)
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
	u32 inline_segments, sge, segments;
	int err;

	sge = max_t(u32, cap->max_send_sge, 1);
	inline_segments = DIV_ROUND_UP(cap->max_inline_data, RNIC_WQE_SEGMENT_BYTES);
	/* Behind control and remote segment; an atomic has one more, and one element. */
	segments = max(2 + max(sge, inline_segments), 4U);
	err = prepare(dev, &qp->sq, &qp->sq_memory, cap->max_send_wr * slots_of(segments), RNIC_WQE_SLOT_BYTES,
		      dev->limits.log_sq_slots);
	if (err)
		return err;
	qp->sq.slots = kvcalloc(BIT(qp->sq.log_entries), sizeof(*qp->sq.slots), GFP_KERNEL);
	if (!qp->sq.slots)
		return -ENOMEM;
	qp->sq.max_sge = sge;
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

static void ring_doorbell(struct rnic_qp *qp, u32 offset, u16 producer)
{
	struct rnic_dev *dev = to_rnic(qp->ibqp.device);

	/* writeq orders the ring before the doorbell. */
	if (!READ_ONCE(dev->dead))
		writeq((u64)producer << 32 | (u64)qp->qpn << 8, dev->doorbells + offset);
}

static int opcode_of(const struct ib_send_wr *wr, u8 *opcode, bool *remote)
{
	*remote = false;
	switch (wr->opcode) {
	case IB_WR_SEND:
		*opcode = RNIC_WORK_SEND;
		return 0;
	case IB_WR_SEND_WITH_IMM:
		*opcode = RNIC_WORK_SEND_IMM;
		return 0;
	case IB_WR_RDMA_WRITE:
		*opcode = RNIC_WORK_WRITE;
		break;
	case IB_WR_RDMA_WRITE_WITH_IMM:
		*opcode = RNIC_WORK_WRITE_IMM;
		break;
	case IB_WR_RDMA_READ:
		*opcode = RNIC_WORK_READ;
		break;
	case IB_WR_ATOMIC_CMP_AND_SWP:
		*opcode = RNIC_WORK_CMP_SWAP;
		break;
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		*opcode = RNIC_WORK_FETCH_ADD;
		break;
	default:
		return -EOPNOTSUPP;
	}
	*remote = true;
	return 0;
}

static int put_inline(const struct rnic_qp *qp, const struct ib_send_wr *wr, union wqe *wqe, u32 *segments)
{
	u32 at = *segments * RNIC_WQE_SEGMENT_BYTES, bytes = 0;
	int index;

	for (index = 0; index < wr->num_sge; index++) {
		if (wr->sg_list[index].length > qp->cap.max_inline_data - bytes)
			return -EINVAL;
		/* Inline data are named by kernel address. */
		memcpy(wqe->bytes + at + bytes, (void *)(uintptr_t)wr->sg_list[index].addr, wr->sg_list[index].length);
		bytes += wr->sg_list[index].length;
	}
	wqe->control.inline_bytes = cpu_to_le16(bytes);
	*segments += DIV_ROUND_UP(bytes, RNIC_WQE_SEGMENT_BYTES);
	return 0;
}

static int build(const struct rnic_qp *qp, const struct ib_send_wr *wr, union wqe *wqe, u32 *segments)
{
	struct rnic_data_segment *data;
	bool remote;
	int index, err;

	memset(wqe, 0, sizeof(*wqe));
	err = opcode_of(wr, &wqe->control.opcode, &remote);
	if (err)
		return err;
	if (wr->num_sge > qp->sq.max_sge)
		return -EINVAL;
	*segments = 1;
	if (wqe->control.opcode == RNIC_WORK_CMP_SWAP || wqe->control.opcode == RNIC_WORK_FETCH_ADD) {
		bool swap = wqe->control.opcode == RNIC_WORK_CMP_SWAP;

		wqe->remote[1].address = cpu_to_le64(atomic_wr(wr)->remote_addr);
		wqe->remote[1].rkey = cpu_to_le32(atomic_wr(wr)->rkey);
		wqe->atomic[2].swap_or_add = cpu_to_le64(swap ? atomic_wr(wr)->swap : atomic_wr(wr)->compare_add);
		wqe->atomic[2].compare = cpu_to_le64(swap ? atomic_wr(wr)->compare_add : 0);
		*segments = 3;
	} else if (remote) {
		wqe->remote[1].address = cpu_to_le64(rdma_wr(wr)->remote_addr);
		wqe->remote[1].rkey = cpu_to_le32(rdma_wr(wr)->rkey);
		*segments = 2;
	}
	if (*segments + wr->num_sge > ARRAY_SIZE(wqe->data))
		return -EINVAL;
	if (wr->send_flags & IB_SEND_INLINE) {
		err = put_inline(qp, wr, wqe, segments);
		if (err)
			return err;
	} else {
		for (index = 0; index < wr->num_sge; index++) {
			data = &wqe->data[(*segments)++];
			data->address = cpu_to_le64(wr->sg_list[index].addr);
			data->length_bytes = cpu_to_le32(wr->sg_list[index].length);
			data->lkey = cpu_to_le32(wr->sg_list[index].lkey);
		}
	}
	wqe->control.qpn[0] = qp->qpn;
	wqe->control.qpn[1] = qp->qpn >> 8;
	wqe->control.qpn[2] = qp->qpn >> 16;
	wqe->control.segments = *segments;
	wqe->control.flags = (wr->send_flags & IB_SEND_SIGNALED ? RNIC_WQE_SIGNALED : 0) |
			     (wr->send_flags & IB_SEND_SOLICITED ? RNIC_WQE_SOLICITED : 0) |
			     (wr->send_flags & IB_SEND_FENCE ? RNIC_WQE_FENCE : 0) |
			     (wr->send_flags & IB_SEND_INLINE ? RNIC_WQE_INLINE : 0);
	wqe->control.immediate = cpu_to_le32(be32_to_cpu(wr->ex.imm_data));
	return 0;
}

static int post_one(struct rnic_qp *qp, const struct ib_send_wr *wr)
{
	struct rnic_work_queue *queue = &qp->sq;
	u32 segments, slots, slot, at;
	union wqe wqe;
	int err;

	err = build(qp, wr, &wqe, &segments);
	if (err)
		return err;
	slots = slots_of(segments);
	if (slots > room(queue))
		return -ENOMEM;
	wqe.control.slot_index = cpu_to_le16(queue->producer);
	for (slot = 0; slot < slots; slot++) {
		at = position(queue, queue->producer + slot);
		memcpy(queue->ring + (size_t)at * RNIC_WQE_SLOT_BYTES, wqe.bytes + slot * RNIC_WQE_SLOT_BYTES,
		       RNIC_WQE_SLOT_BYTES);
	}
	at = position(queue, queue->producer);
	queue->wr_ids[at] = wr->wr_id;
	queue->slots[at] = slots;
	queue->producer += slots;
	return 0;
}

int rnic_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	struct rnic_qp *qp = to_rnic_qp(ibqp);
	unsigned long flags;
	u16 before;
	int err = 0;

	spin_lock_irqsave(&qp->sq.lock, flags);
	before = qp->sq.producer;
	for (; wr; wr = wr->next) {
		err = post_one(qp, wr);
		if (err) {
			*bad = wr;
			break;
		}
	}
	if (qp->sq.producer != before)
		ring_doorbell(qp, RNIC_DB_SEND, qp->sq.producer);
	spin_unlock_irqrestore(&qp->sq.lock, flags);
	return err;
}

static int post_one_receive(struct rnic_work_queue *queue, const struct ib_recv_wr *wr)
{
	struct rnic_data_segment *data;
	int index;
	u32 at;

	if (wr->num_sge > queue->max_sge)
		return -EINVAL;
	if (!room(queue))
		return -ENOMEM;
	at = position(queue, queue->producer);
	data = queue->ring + (((size_t)at * RNIC_WQE_SEGMENT_BYTES) << queue->log_stride);
	memset(data, 0, RNIC_WQE_SEGMENT_BYTES << queue->log_stride);
	for (index = 0; index < wr->num_sge; index++) {
		/* An element of no bytes would end the list. */
		if (!wr->sg_list[index].length)
			continue;
		data->address = cpu_to_le64(wr->sg_list[index].addr);
		data->length_bytes = cpu_to_le32(wr->sg_list[index].length);
		data->lkey = cpu_to_le32(wr->sg_list[index].lkey);
		data++;
	}
	queue->wr_ids[at] = wr->wr_id;
	queue->producer++;
	return 0;
}

int rnic_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	struct rnic_qp *qp = to_rnic_qp(ibqp);
	unsigned long flags;
	u16 before;
	int err = 0;

	spin_lock_irqsave(&qp->rq.lock, flags);
	before = qp->rq.producer;
	for (; wr; wr = wr->next) {
		err = post_one_receive(&qp->rq, wr);
		if (err) {
			*bad = wr;
			break;
		}
	}
	if (qp->rq.producer != before)
		ring_doorbell(qp, RNIC_DB_RECEIVE, qp->rq.producer);
	spin_unlock_irqrestore(&qp->rq.lock, flags);
	return err;
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
	[9] = IB_WC_SEND,
	[RNIC_COMPLETION_CMP_SWAP] = IB_WC_COMP_SWAP,
	[RNIC_COMPLETION_FETCH_ADD] = IB_WC_FETCH_ADD,
};

/* What a completion retires: of sends everything up to it, unsignaled ones included. False: it is none of ours. */
static bool retire_sends(struct rnic_work_queue *queue, u16 index, u64 *wr_id)
{
	u32 at;

	while (queue->consumer != queue->producer) {
		at = position(queue, queue->consumer);
		*wr_id = queue->wr_ids[at];
		queue->consumer += queue->slots[at];
		if (at == position(queue, index))
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
	if (cqe->opcode & RNIC_COMPLETION_RECV) {
		spin_lock(&qp->rq.lock);
		if (qp->rq.consumer != qp->rq.producer) {
			wc->wr_id = qp->rq.wr_ids[position(&qp->rq, index)];
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
