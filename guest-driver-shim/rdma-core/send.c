// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Posting of sends: WQEs are written where they stand in the ring, then one doorbell announces the batch. */
#include <errno.h>
#include <string.h>

#include "rnic.h"

/* The ring as a row of segments: a WQE's may wrap around its end. */
static void *segment_at(const struct rnic_work_queue *queue, uint32_t index)
{
	return queue->ring + (size_t)(index & ((SEGMENTS_A_SLOT << queue->log_entries) - 1)) * RNIC_WQE_SEGMENT_BYTES;
}

static void put_remote(const struct rnic_work_queue *queue, uint32_t at, uint64_t address, uint32_t rkey)
{
	struct rnic_remote_segment *remote = segment_at(queue, at);

	remote->address = htole64(address);
	remote->rkey = htole32(rkey);
	remote->reserved = 0;
}

static void put_atomic(const struct rnic_work_queue *queue, uint32_t at, const struct ibv_send_wr *wr)
{
	struct rnic_atomic_segment *atomic = segment_at(queue, at + 1);
	bool swap = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

	put_remote(queue, at, wr->wr.atomic.remote_addr, wr->wr.atomic.rkey);
	atomic->swap_or_add = htole64(swap ? wr->wr.atomic.swap : wr->wr.atomic.compare_add);
	atomic->compare = htole64(swap ? wr->wr.atomic.compare_add : 0);
}

static void put_flush(const struct rnic_work_queue *queue, uint32_t at, const struct ibv_send_wr *wr,
		      const struct rnic_flush_segment *flush)
{
	put_remote(queue, at, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
	memcpy(segment_at(queue, at + 1), flush, sizeof(*flush));
}

static void put_elements(const struct rnic_work_queue *queue, uint32_t at, const struct ibv_send_wr *wr)
{
	struct rnic_data_segment *data;
	int index;

	for (index = 0; index < wr->num_sge; index++) {
		data = segment_at(queue, at + index);
		data->address = htole64(wr->sg_list[index].addr);
		data->length_bytes = htole32(wr->sg_list[index].length);
		data->lkey = htole32(wr->sg_list[index].lkey);
	}
}

static void put_bytes(const struct rnic_work_queue *queue, uint32_t at, uint32_t offset, const void *bytes,
		      uint32_t count)
{
	size_t ring_bytes = (size_t)RNIC_WQE_SLOT_BYTES << queue->log_entries;
	size_t from = ((size_t)at * RNIC_WQE_SEGMENT_BYTES + offset) & (ring_bytes - 1);
	size_t first = count < ring_bytes - from ? count : ring_bytes - from;

	memcpy(queue->ring + from, bytes, first);
	memcpy(queue->ring, (const uint8_t *)bytes + first, count - first);
}

static void put_inline(const struct rnic_work_queue *queue, uint32_t at, const struct ibv_send_wr *wr)
{
	uint32_t offset = 0;
	int index;

	for (index = 0; index < wr->num_sge; index++) {
		put_bytes(queue, at, offset, (void *)(uintptr_t)wr->sg_list[index].addr, wr->sg_list[index].length);
		offset += wr->sg_list[index].length;
	}
}

/* The device's word for a work request; 0: it has none. */
static uint8_t opcode_of(const struct ibv_send_wr *wr, bool flush)
{
	switch (wr->opcode) {
	case IBV_WR_SEND:
		return RNIC_WORK_SEND;
	case IBV_WR_SEND_WITH_IMM:
		return RNIC_WORK_SEND_IMM;
	case IBV_WR_SEND_WITH_INV:
		return RNIC_WORK_SEND_INV;
	case IBV_WR_LOCAL_INV:
		return RNIC_WORK_LOCAL_INV;
	case IBV_WR_BIND_MW:
		return RNIC_WORK_BIND_MW;
	case IBV_WR_RDMA_WRITE:
		return RNIC_WORK_WRITE;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return RNIC_WORK_WRITE_IMM;
	case IBV_WR_RDMA_READ:
		return RNIC_WORK_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return RNIC_WORK_CMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return RNIC_WORK_FETCH_ADD;
	case IBV_WR_ATOMIC_WRITE:
		return RNIC_WORK_ATOMIC_WRITE;
	case IBV_WR_FLUSH:
		return flush ? RNIC_WORK_FLUSH : 0;
	default:
		return 0;
	}
}

/* Which of the peer's shared receive queues it is for. */
static void put_xrc(const struct rnic_work_queue *queue, uint32_t at, const struct ibv_send_wr *wr)
{
	struct rnic_xrc_segment *xrc = segment_at(queue, at);

	xrc->srqn = htole32(wr->qp_type.xrc.remote_srqn & 0xffffff);
	xrc->reserved0 = 0;
	xrc->reserved1 = 0;
}

/* Where a datagram goes. */
static void put_datagram(const struct rnic_work_queue *queue, uint32_t at, const struct ibv_send_wr *wr)
{
	struct rnic_datagram_segment address = {
		.av = container_of(wr->wr.ud.ah, struct rnic_ah, base)->av,
		.dest_qpn = htole32(wr->wr.ud.remote_qpn & 0xffffff),
		.qkey = htole32(wr->wr.ud.remote_qkey),
	};
	uint32_t index;

	for (index = 0; index < DATAGRAM_SEGMENTS; index++)
		memcpy(segment_at(queue, at + index), (uint8_t *)&address + index * RNIC_WQE_SEGMENT_BYTES,
		       RNIC_WQE_SEGMENT_BYTES);
}

/* Rights as the device has them. */
static uint32_t device_access(unsigned int access)
{
	return (access & (RNIC_ACCESS_REMOTE_WRITE | RNIC_ACCESS_REMOTE_READ | RNIC_ACCESS_REMOTE_ATOMIC)) |
	       (access & IBV_ACCESS_ZERO_BASED ? RNIC_ACCESS_ZERO_BASED : 0);
}

static void put_bind(const struct rnic_work_queue *queue, uint32_t at, const struct ibv_mw_bind_info *info)
{
	struct rnic_bind_segment bind = {
		.access = htole32(device_access(info->mw_access_flags)),
		.lkey = htole32(info->mr ? info->mr->lkey : 0),
		.address = htole64(info->addr),
		.length_bytes = htole64(info->length),
	};

	memcpy(segment_at(queue, at), &bind, RNIC_WQE_SEGMENT_BYTES);
	memcpy(segment_at(queue, at + 1), (uint8_t *)&bind + RNIC_WQE_SEGMENT_BYTES, RNIC_WQE_SEGMENT_BYTES);
}

/* Immediate data, or the key that the work request is about. */
static uint32_t number_of(const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		return wr->invalidate_rkey;
	case IBV_WR_BIND_MW:
		return wr->bind_mw.rkey;
	default:
		return be32toh(wr->imm_data);
	}
}

/* Segments before the elements. */
static uint32_t head_segments(uint8_t opcode, bool datagram)
{
	if (datagram)
		return 1 + DATAGRAM_SEGMENTS;
	switch (opcode) {
	case RNIC_WORK_SEND:
	case RNIC_WORK_SEND_IMM:
	case RNIC_WORK_SEND_INV:
	case RNIC_WORK_LOCAL_INV:
		return 1;
	case RNIC_WORK_CMP_SWAP:
	case RNIC_WORK_FETCH_ADD:
	case RNIC_WORK_BIND_MW:
	case RNIC_WORK_FLUSH:
		return 3;
	default:
		return 2;
	}
}

static int inline_length(const struct rnic_qp *qp, const struct ibv_send_wr *wr, uint32_t *bytes)
{
	/* The word of an atomic write always fits into its slot, whatever the queue pair was made for. */
	uint32_t most = wr->opcode == IBV_WR_ATOMIC_WRITE ? RNIC_ATOMIC_BYTES : qp->cap.max_inline_data;
	int index;

	*bytes = 0;
	for (index = 0; index < wr->num_sge; index++) {
		if (wr->sg_list[index].length > most - *bytes)
			return ENOMEM;
		*bytes += wr->sg_list[index].length;
	}
	return 0;
}

/* Writes a work request into the ring; of a FLUSH with what it is about. Under the queue's lock. */
int rnic_post_one_send(struct rnic_qp *qp, const struct ibv_send_wr *wr, const struct rnic_flush_segment *flush)
{
	struct rnic_work_queue *queue = &qp->sq;
	bool is_inline = wr->send_flags & IBV_SEND_INLINE, datagram = qp->base.qp.qp_type == IBV_QPT_UD, xrc;
	uint32_t first = (uint32_t)queue->producer * SEGMENTS_A_SLOT, head, segments, slots, inline_bytes = 0, at;
	struct rnic_control_segment *control = segment_at(queue, first);
	uint8_t opcode = opcode_of(wr, flush);
	int err;

	if (!opcode)
		return EOPNOTSUPP;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > queue->max_sge)
		return EINVAL;
	if (datagram && (!wr->wr.ud.ah || (opcode != RNIC_WORK_SEND && opcode != RNIC_WORK_SEND_IMM)))
		return EINVAL;
	/* What sends no packet has no queue at the peer. */
	xrc = qp->base.qp.qp_type == IBV_QPT_XRC_SEND && opcode != RNIC_WORK_LOCAL_INV && opcode != RNIC_WORK_BIND_MW;
	head = head_segments(opcode, datagram);
	segments = head + xrc;
	if (is_inline) {
		err = inline_length(qp, wr, &inline_bytes);
		if (err)
			return err;
		at = segments + DIV_ROUND_UP(inline_bytes, RNIC_WQE_SEGMENT_BYTES);
	} else {
		at = segments + wr->num_sge;
	}
	slots = DIV_ROUND_UP(at, SEGMENTS_A_SLOT);
	if (slots > RNIC_MAX_WQE_SLOTS)
		return EINVAL;
	if (slots > rnic_room(queue))
		return ENOMEM;
	if (xrc)
		put_xrc(queue, first + 1, wr);
	if (datagram)
		put_datagram(queue, first + 1, wr);
	else if (opcode == RNIC_WORK_BIND_MW)
		put_bind(queue, first + 1, &wr->bind_mw.bind_info);
	else if (opcode == RNIC_WORK_FLUSH)
		put_flush(queue, first + 1, wr, flush);
	else if (head == 3)
		put_atomic(queue, first + 1 + xrc, wr);
	else if (head == 2)
		put_remote(queue, first + 1 + xrc, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
	if (is_inline)
		put_inline(queue, first + segments, wr);
	else
		put_elements(queue, first + segments, wr);
	control->opcode = opcode;
	control->qpn[0] = qp->qpn;
	control->qpn[1] = qp->qpn >> 8;
	control->qpn[2] = qp->qpn >> 16;
	control->slot_index = htole16(queue->producer);
	control->segments = at;
	control->flags = (wr->send_flags & IBV_SEND_SIGNALED ? RNIC_WQE_SIGNALED : 0) |
			 (wr->send_flags & IBV_SEND_SOLICITED ? RNIC_WQE_SOLICITED : 0) |
			 (wr->send_flags & IBV_SEND_FENCE ? RNIC_WQE_FENCE : 0) | (is_inline ? RNIC_WQE_INLINE : 0);
	control->immediate = htole32(number_of(wr));
	control->inline_bytes = htole16(inline_bytes);
	control->reserved = 0;
	at = rnic_position(queue, queue->producer);
	queue->wr_ids[at] = wr->wr_id;
	queue->slots[at] = slots;
	queue->producer += slots;
	return 0;
}

/* Before RTS the device takes no sends. */
bool rnic_takes_sends(const struct rnic_qp *qp)
{
	return qp->base.qp.state >= IBV_QPS_RTS;
}

void rnic_announce_sends(struct rnic_qp *qp)
{
	rnic_ring_doorbell(qp->base.qp.context, RNIC_DB_SEND, (uint64_t)qp->sq.producer << 32 | (uint64_t)qp->qpn << 8);
}

/* Of windows of type 1, whose keys are ours to choose. */
int rnic_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = { .wr_id = bind->wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = bind->send_flags };
	struct ibv_send_wr *bad;
	int err;

	if (mw->type != IBV_MW_TYPE_1 || (bind->bind_info.mr && bind->bind_info.mr->pd != mw->pd))
		return EINVAL;
	wr.bind_mw.mw = mw;
	wr.bind_mw.bind_info = bind->bind_info;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	err = rnic_post_send(qp, &wr, &bad);
	if (!err)
		mw->rkey = wr.bind_mw.rkey;
	return err;
}

int rnic_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct rnic_qp *qp = to_rnic_qp(ibqp);
	uint16_t before;
	int err = 0;

	pthread_spin_lock(&qp->sq.lock);
	before = qp->sq.producer;
	if (!rnic_takes_sends(qp)) {
		err = EINVAL;
		*bad = wr;
		wr = NULL;
	}
	for (; wr; wr = wr->next) {
		err = rnic_post_one_send(qp, wr, NULL);
		if (err) {
			*bad = wr;
			break;
		}
	}
	if (qp->sq.producer != before)
		rnic_announce_sends(qp);
	pthread_spin_unlock(&qp->sq.lock);
	return err;
}
