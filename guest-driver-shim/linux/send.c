// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Posting of sends by kernel users. */
#include "rnic.h"

/* A WQE as it is built: segments in a row, then copied into slots that may wrap around the ring's end. */
union wqe {
	struct rnic_control_segment control;
	struct rnic_remote_segment remote[RNIC_MAX_WQE_SLOTS * RNIC_SEGMENTS_A_SLOT];
	struct rnic_atomic_segment atomic[RNIC_MAX_WQE_SLOTS * RNIC_SEGMENTS_A_SLOT];
	struct {
		struct rnic_control_segment control;
		struct rnic_register_segment what;
	} registration;
	struct {
		struct rnic_control_segment control;
		struct rnic_datagram_segment address;
	} datagram;
	struct rnic_data_segment data[RNIC_MAX_WQE_SLOTS * RNIC_SEGMENTS_A_SLOT];
	u8 bytes[RNIC_MAX_WQE_SLOTS * RNIC_WQE_SLOT_BYTES];
};

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
	case IB_WR_SEND_WITH_INV:
		*opcode = RNIC_WORK_SEND_INV;
		return 0;
	case IB_WR_LOCAL_INV:
		*opcode = RNIC_WORK_LOCAL_INV;
		return 0;
	case IB_WR_REG_MR:
		*opcode = RNIC_WORK_REG_MR;
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
	case IB_WR_ATOMIC_WRITE:
		*opcode = RNIC_WORK_ATOMIC_WRITE;
		break;
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		*opcode = RNIC_WORK_FETCH_ADD;
		break;
	default:
		/* A FLUSH has no form here: the kernel's work requests do not say what is to be flushed. */
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

/* The memory that a region has from now on, as it was mapped. */
static void put_registration(const struct ib_reg_wr *wr, struct rnic_register_segment *what)
{
	struct rnic_mr *mr = to_rnic_mr(wr->mr);

	what->access = cpu_to_le32(rnic_device_access(wr->access));
	what->start = cpu_to_le64(wr->mr->iova);
	what->length_bytes = cpu_to_le64(wr->mr->length);
	what->pages.root = cpu_to_le64(mr->fast_list.iova);
	what->pages.page_shift = ilog2(wr->mr->page_size);
	what->pages.levels = 1;
}

/* What stands between control segment and elements. */
static int put_head(const struct rnic_qp *qp, const struct ib_send_wr *wr, bool remote, union wqe *wqe, u32 *segments)
{
	u8 opcode = wqe->control.opcode;

	*segments = 1;
	if (rnic_is_datagram(qp)) {
		struct rnic_datagram_segment *address = &wqe->datagram.address;

		if ((opcode != RNIC_WORK_SEND && opcode != RNIC_WORK_SEND_IMM) || !ud_wr(wr)->ah)
			return -EINVAL;
		address->av = to_rnic_ah(ud_wr(wr)->ah)->av;
		address->dest_qpn = cpu_to_le32(ud_wr(wr)->remote_qpn);
		address->qkey = cpu_to_le32(ud_wr(wr)->remote_qkey);
		if (qp->type == RNIC_QP_TYPE_GSI)
			address->pkey_index = cpu_to_le16(ud_wr(wr)->pkey_index);
		*segments += RNIC_DATAGRAM_SEGMENTS;
	} else if (opcode == RNIC_WORK_REG_MR) {
		put_registration(reg_wr(wr), &wqe->registration.what);
		*segments += sizeof(struct rnic_register_segment) / RNIC_WQE_SEGMENT_BYTES;
	} else if (opcode == RNIC_WORK_CMP_SWAP || opcode == RNIC_WORK_FETCH_ADD) {
		bool swap = opcode == RNIC_WORK_CMP_SWAP;

		wqe->remote[1].address = cpu_to_le64(atomic_wr(wr)->remote_addr);
		wqe->remote[1].rkey = cpu_to_le32(atomic_wr(wr)->rkey);
		wqe->atomic[2].swap_or_add = cpu_to_le64(swap ? atomic_wr(wr)->swap : atomic_wr(wr)->compare_add);
		wqe->atomic[2].compare = cpu_to_le64(swap ? atomic_wr(wr)->compare_add : 0);
		*segments += 2;
	} else if (remote) {
		wqe->remote[1].address = cpu_to_le64(rdma_wr(wr)->remote_addr);
		wqe->remote[1].rkey = cpu_to_le32(rdma_wr(wr)->rkey);
		*segments += 1;
	}
	return 0;
}

/* Immediate data, or the key that the work request is about. */
static u32 number_of(const struct ib_send_wr *wr)
{
	switch (wr->opcode) {
	case IB_WR_SEND_WITH_INV:
	case IB_WR_LOCAL_INV:
		return wr->ex.invalidate_rkey;
	case IB_WR_REG_MR:
		return reg_wr(wr)->key;
	default:
		return be32_to_cpu(wr->ex.imm_data);
	}
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
	err = put_head(qp, wr, remote, wqe, segments);
	if (err)
		return err;
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
	wqe->control.immediate = cpu_to_le32(number_of(wr));
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
	slots = rnic_slots_of(segments);
	if (slots > rnic_room(queue))
		return -ENOMEM;
	wqe.control.slot_index = cpu_to_le16(queue->producer);
	for (slot = 0; slot < slots; slot++) {
		at = rnic_position(queue, queue->producer + slot);
		memcpy(queue->ring + (size_t)at * RNIC_WQE_SLOT_BYTES, wqe.bytes + slot * RNIC_WQE_SLOT_BYTES,
		       RNIC_WQE_SLOT_BYTES);
	}
	at = rnic_position(queue, queue->producer);
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
		rnic_ring_doorbell(qp, RNIC_DB_SEND, qp->sq.producer);
	spin_unlock_irqrestore(&qp->sq.lock, flags);
	return err;
}
