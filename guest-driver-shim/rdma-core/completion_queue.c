// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Completion queues: polled in the process' memory, armed by a doorbell. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rnic.h"

struct ibv_cq *rnic_create_cq(struct ibv_context *ibcontext, int entries, struct ibv_comp_channel *channel,
			      int comp_vector)
{
	struct rnic_context *context = to_rnic_context(ibcontext);
	struct {
		struct ibv_create_cq core;
		struct rnic_ureq_create_cq ours;
	} command = {};
	struct {
		struct ib_uverbs_create_cq_resp core;
		struct rnic_uresp_create_cq ours;
	} answer = {};
	size_t ring_bytes;
	struct rnic_cq *cq;
	int err = EINVAL;

	if (entries <= 0 || (uint32_t)entries > 1U << context->limits.log_cq_entries)
		goto fail;
	err = ENOMEM;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		goto fail;
	/* The ring takes whole pages, so it has at least the entries of one. */
	cq->log_entries = rnic_log2_up(entries);
	while (sizeof(struct rnic_cqe) << cq->log_entries < context->page_bytes)
		cq->log_entries++;
	ring_bytes = sizeof(struct rnic_cqe) << cq->log_entries;
	/* The record stands behind the ring, on a line of its own. */
	err = rnic_pages_get(&cq->pages, ring_bytes + RNIC_CQE_BYTES, context->page_bytes);
	if (err)
		goto free;
	cq->ring = cq->pages.address;
	cq->record = (struct rnic_consumer_record *)((uint8_t *)cq->pages.address + ring_bytes);
	pthread_spin_init(&cq->lock, PTHREAD_PROCESS_PRIVATE);
	command.ours.ring_address = (uintptr_t)cq->ring;
	command.ours.record_address = (uintptr_t)cq->record;
	command.ours.log_entries = cq->log_entries;
	err = ibv_cmd_create_cq(ibcontext, entries, channel, comp_vector, &cq->base, &command.core, sizeof(command),
				&answer.core, sizeof(answer));
	if (err)
		goto put;
	cq->cqn = answer.ours.cqn;
	return &cq->base;

put:
	pthread_spin_destroy(&cq->lock);
	rnic_pages_put(&cq->pages);
free:
	free(cq);
fail:
	errno = err;
	return NULL;
}

int rnic_destroy_cq(struct ibv_cq *ibcq)
{
	struct rnic_cq *cq = to_rnic_cq(ibcq);
	int err = ibv_cmd_destroy_cq(ibcq);

	if (err)
		return err;
	pthread_spin_destroy(&cq->lock);
	rnic_pages_put(&cq->pages);
	free(cq);
	return 0;
}

static struct rnic_cqe *entry_at(struct rnic_cq *cq, uint32_t index)
{
	return &cq->ring[index & ((1U << cq->log_entries) - 1)];
}

static bool is_new(struct rnic_cq *cq, const struct rnic_cqe *cqe, uint32_t index)
{
	uint32_t last = le32toh(*(volatile const __le32 *)((const uint8_t *)cqe + offsetof(struct rnic_cqe, phase)));

	return (last & RNIC_CQE_PHASE) == rnic_phase(index, cq->log_entries);
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

/* One completion of a queue pair that still exists; false when the entry told of none. */
static bool take(struct rnic_qp *qp, const struct rnic_cqe *cqe, struct ibv_wc *wc)
{
	uint16_t index = le16toh(cqe->wqe_index);
	bool known = cqe->opcode & RNIC_COMPLETION_RECV ? retire_receive(&qp->rq, index, &wc->wr_id) :
							    retire_sends(&qp->sq, index, &wc->wr_id);

	if (!known)
		return false;
	wc->status = cqe->status;
	wc->opcode = opcode_of(cqe->opcode);
	wc->vendor_err = le32toh(cqe->vendor_err);
	wc->byte_len = le32toh(cqe->byte_len);
	wc->qp_num = qp->qpn;
	wc->src_qp = le32toh(cqe->src_qpn);
	wc->wc_flags = 0;
	wc->imm_data = 0;
	if (le16toh(cqe->flags) & RNIC_CQE_WITH_IMM) {
		wc->wc_flags = IBV_WC_WITH_IMM;
		wc->imm_data = htobe32(le32toh(cqe->immediate));
	}
	wc->pkey_index = 0;
	wc->slid = 0;
	wc->sl = 0;
	wc->dlid_path_bits = 0;
	return true;
}

int rnic_poll_cq(struct ibv_cq *ibcq, int count, struct ibv_wc *wc)
{
	struct rnic_context *context = to_rnic_context(ibcq->context);
	struct rnic_cq *cq = to_rnic_cq(ibcq);
	const struct rnic_cqe *cqe;
	struct rnic_qp *qp = NULL;
	uint32_t before, qpn;
	int found = 0;

	pthread_spin_lock(&cq->lock);
	before = cq->consumer;
	while (found < count) {
		cqe = entry_at(cq, cq->consumer);
		if (!is_new(cq, cqe, cq->consumer))
			break;
		/* The phase was read first; the rest is not older. */
		udma_from_device_barrier();
		qpn = le32toh(cqe->qpn);
		if (!qp || qp->qpn != qpn)
			qp = rnic_find_qp(context, qpn);
		if (qp)
			found += take(qp, cqe, &wc[found]);
		cq->consumer++;
	}
	if (cq->consumer != before) {
		/* The entries are read before the device may write them anew. */
		udma_to_device_barrier();
		*(volatile __le32 *)&cq->record->consumer_index = htole32(cq->consumer);
	}
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

/* A queue pair goes, or begins anew: what stands in the queue about it is nobody's. Under the queue's lock. */
void rnic_cq_forget(struct rnic_cq *cq, uint32_t qpn)
{
	uint32_t mask = (1U << cq->log_entries) - 1, index;
	struct rnic_cqe *cqe;

	for (index = cq->consumer; index - cq->consumer <= mask; index++) {
		cqe = entry_at(cq, index);
		if (!is_new(cq, cqe, index))
			break;
		udma_from_device_barrier();
		if (le32toh(cqe->qpn) == qpn)
			cqe->qpn = 0;
	}
}
