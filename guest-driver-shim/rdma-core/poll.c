// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Polling of completion queues, in the process' memory, and their arms. */
#include "rnic.h"

struct rnic_cqe *rnic_cq_entry(const struct rnic_cq *cq, uint32_t index)
{
	if ((int32_t)(index - cq->begin) < 0)
		return &cq->old[index - cq->old_begin];
	return &cq->ring[(index - cq->begin) & ((1U << cq->log_entries) - 1)];
}

static bool is_new(const struct rnic_cq *cq, const struct rnic_cqe *cqe, uint32_t index)
{
	uint32_t last = le32toh(*(volatile const __le32 *)((const uint8_t *)cqe + offsetof(struct rnic_cqe, phase)));

	if ((int32_t)(index - cq->begin) < 0)
		return true;
	return (last & RNIC_CQE_PHASE) == rnic_phase(index - cq->begin, cq->log_entries);
}

/* The entry, if it has been written: the phase is read first, so the rest is not older. */
static struct rnic_cqe *written(const struct rnic_cq *cq, uint32_t index)
{
	struct rnic_cqe *cqe = rnic_cq_entry(cq, index);

	if (!is_new(cq, cqe, index))
		return NULL;
	udma_from_device_barrier();
	return cqe;
}

/* The device's numbers of status are those of verbs. */
static_assert((int)IBV_WC_SUCCESS == RNIC_STATUS_OF_COMPLETION_SUCCESS &&
		      (int)IBV_WC_LOC_PROT_ERR == RNIC_STATUS_OF_COMPLETION_LOC_PROT_ERR &&
		      (int)IBV_WC_WR_FLUSH_ERR == RNIC_STATUS_OF_COMPLETION_WR_FLUSH_ERR &&
		      (int)IBV_WC_REM_ACCESS_ERR == RNIC_STATUS_OF_COMPLETION_REM_ACCESS_ERR &&
		      (int)IBV_WC_RNR_RETRY_EXC_ERR == RNIC_STATUS_OF_COMPLETION_RNR_RETRY_EXC_ERR &&
		      (int)IBV_WC_GENERAL_ERR == RNIC_STATUS_OF_COMPLETION_GENERAL_ERR,
	      "the numbers of status");

static enum ibv_wc_opcode opcode_of(uint8_t opcode)
{
	switch (opcode) {
	case RNIC_COMPLETION_WRITE:
	case RNIC_COMPLETION_WRITE_IMM:
		return IBV_WC_RDMA_WRITE;
	case RNIC_COMPLETION_READ:
		return IBV_WC_RDMA_READ;
	case RNIC_COMPLETION_CMP_SWAP:
		return IBV_WC_COMP_SWAP;
	case RNIC_COMPLETION_FETCH_ADD:
		return IBV_WC_FETCH_ADD;
	case RNIC_COMPLETION_RECV:
		return IBV_WC_RECV;
	case RNIC_COMPLETION_RECV_RDMA_WITH_IMM:
		return IBV_WC_RECV_RDMA_WITH_IMM;
	case RNIC_COMPLETION_FLUSH:
		return IBV_WC_FLUSH;
	case RNIC_COMPLETION_ATOMIC_WRITE:
		return IBV_WC_ATOMIC_WRITE;
	case RNIC_COMPLETION_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	case RNIC_COMPLETION_BIND_MW:
		return IBV_WC_BIND_MW;
	default:
		return IBV_WC_SEND;
	}
}

/* A send completion retires everything up to its work request, unsignaled ones included. */
static bool retire_sends(struct rnic_work_queue *queue, uint16_t index, uint64_t *wr_id)
{
	uint32_t at;

	while (queue->consumer != queue->producer) {
		at = rnic_position(queue, queue->consumer);
		*wr_id = queue->wr_ids[at];
		rnic_set_consumer(queue, queue->consumer + queue->slots[at]);
		if (at == rnic_position(queue, index))
			return true;
	}
	return false;
}

static bool retire_receive(struct rnic_work_queue *queue, uint16_t index, uint64_t *wr_id)
{
	if (queue->consumer == queue->producer)
		return false;
	*wr_id = queue->wr_ids[rnic_position(queue, index)];
	rnic_set_consumer(queue, index + 1);
	return true;
}

/* Of a queue pair of this process. */
static bool retire(struct rnic_qp *qp, const struct rnic_cqe *cqe, uint64_t *wr_id)
{
	uint16_t index = le16toh(cqe->wqe_index);

	if (!(cqe->opcode & RNIC_COMPLETION_RECV))
		return retire_sends(&qp->sq, index, wr_id);
	if (!(le16toh(cqe->flags) & RNIC_CQE_SRQ))
		return retire_receive(&qp->rq, index, wr_id);
	if (!qp->srq)
		return false;
	*wr_id = rnic_srq_free_slot(qp->srq, index);
	return true;
}

/* The shared receive queue of extended connections that an entry is of: its target may be another process'. */
static struct rnic_srq *xrc_queue(struct rnic_context *context, const struct rnic_cqe *cqe)
{
	if (!(cqe->opcode & RNIC_COMPLETION_RECV) || !(le16toh(cqe->flags) & RNIC_CQE_SRQ))
		return NULL;
	return rnic_find_srq(context, le32toh(cqe->srqn));
}

/* One completion of a queue that still exists; false when the entry told of none. */
static bool take(struct rnic_context *context, const struct rnic_cqe *cqe, struct ibv_wc *wc)
{
	struct rnic_srq *shared = xrc_queue(context, cqe);
	struct rnic_qp *qp;

	if (shared) {
		wc->wr_id = rnic_srq_free_slot(shared, le16toh(cqe->wqe_index));
	} else {
		qp = rnic_find_qp(context, le32toh(cqe->qpn));
		if (!qp || !retire(qp, cqe, &wc->wr_id))
			return false;
	}
	wc->status = cqe->status;
	wc->opcode = opcode_of(cqe->opcode);
	wc->vendor_err = le32toh(cqe->vendor_err);
	wc->byte_len = le32toh(cqe->byte_len);
	wc->qp_num = le32toh(cqe->qpn);
	wc->src_qp = le32toh(cqe->src_qpn);
	wc->wc_flags = 0;
	wc->imm_data = 0;
	if (le16toh(cqe->flags) & RNIC_CQE_WITH_IMM) {
		wc->wc_flags = IBV_WC_WITH_IMM;
		wc->imm_data = htobe32(le32toh(cqe->immediate));
	}
	if (le16toh(cqe->flags) & RNIC_CQE_WITH_INV) {
		wc->wc_flags |= IBV_WC_WITH_INV;
		wc->invalidated_rkey = le32toh(cqe->immediate);
	}
	wc->pkey_index = 0;
	wc->slid = 0;
	wc->sl = 0;
	if (wc->status == IBV_WC_SUCCESS && le16toh(cqe->flags) & RNIC_CQE_GRH) {
		wc->wc_flags |= IBV_WC_GRH;
		wc->pkey_index = le16toh(cqe->pkey_index);
		wc->sl = cqe->service_level;
	}
	wc->dlid_path_bits = 0;
	return true;
}

/* The next completion, if there is one. Under the queue's lock. */
bool rnic_cq_take(struct rnic_cq *cq, struct ibv_wc *wc, uint64_t *time_ns)
{
	struct rnic_context *context = to_rnic_context(cq->base.cq.context);
	const struct rnic_cqe *cqe;
	bool found;

	for (;;) {
		cqe = written(cq, cq->consumer);
		if (!cqe)
			return false;
		found = take(context, cqe, wc);
		if (time_ns)
			*time_ns = le64toh(cqe->time_ns);
		cq->consumer++;
		if (found)
			return true;
	}
}

/* The entries have been read: the device may write them anew. */
void rnic_cq_tell_consumer(struct rnic_cq *cq)
{
	udma_to_device_barrier();
	*(volatile __le32 *)&cq->record->consumer_index = htole32(cq->consumer);
}

int rnic_poll_cq(struct ibv_cq *ibcq, int count, struct ibv_wc *wc)
{
	struct rnic_cq *cq = to_rnic_cq(ibcq);
	uint32_t before;
	int found = 0;

	pthread_spin_lock(&cq->lock);
	before = cq->consumer;
	while (found < count && rnic_cq_take(cq, &wc[found], NULL))
		found++;
	if (cq->consumer != before)
		rnic_cq_tell_consumer(cq);
	pthread_spin_unlock(&cq->lock);
	return found;
}

/* An entry that came since the last poll fires at once, so nothing falls between poll and arm. */
int rnic_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct rnic_cq *cq = to_rnic_cq(ibcq);
	uint64_t value;

	pthread_spin_lock(&cq->lock);
	value = (uint64_t)cq->consumer << 32 | (uint64_t)cq->cqn << 8 | cq->arm_sequence;
	if (solicited_only)
		value |= RNIC_CQ_ARM_SOLICITED;
	rnic_ring_doorbell(ibcq->context, RNIC_DB_CQ_ARM, value);
	pthread_spin_unlock(&cq->lock);
	return 0;
}

/* The next arm is a new one. */
void rnic_cq_event(struct ibv_cq *ibcq)
{
	struct rnic_cq *cq = to_rnic_cq(ibcq);

	pthread_spin_lock(&cq->lock);
	cq->arm_sequence = (cq->arm_sequence + 1) & 3;
	pthread_spin_unlock(&cq->lock);
}

/*
 * A queue pair goes, or begins anew: what stands in the queue about it is nobody's, and its shared receives are free.
 * Under the queue's lock.
 */
void rnic_cq_forget(struct rnic_cq *cq, struct rnic_qp *qp)
{
	struct rnic_cqe *cqe;
	uint32_t index;

	for (index = cq->consumer; (cqe = written(cq, index)); index++) {
		if (le32toh(cqe->qpn) != qp->qpn)
			continue;
		if (qp->srq && le16toh(cqe->flags) & RNIC_CQE_SRQ)
			rnic_srq_free_slot(qp->srq, le16toh(cqe->wqe_index));
		cqe->qpn = 0;
	}
}

/* A shared receive queue of extended connections goes: its number may be another's soon. Under the queue's lock. */
void rnic_cq_forget_srq(struct rnic_cq *cq, struct rnic_srq *srq)
{
	struct rnic_cqe *cqe;
	uint32_t index;

	for (index = cq->consumer; (cqe = written(cq, index)); index++) {
		if (!(le16toh(cqe->flags) & RNIC_CQE_SRQ) || le32toh(cqe->srqn) != srq->srqn)
			continue;
		cqe->srqn = 0;
		cqe->qpn = 0;
	}
}
