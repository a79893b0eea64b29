// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Shared receive queues: WQEs in slots, and a ring that says in which order they are posted. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rnic.h"

static void let_go(struct rnic_srq *srq)
{
	rnic_pages_put(&srq->pages);
	free(srq->wr_ids);
	free(srq->next_free);
	pthread_spin_destroy(&srq->lock);
	free(srq);
}

/* Slots and index ring in one piece of memory, each beginning with a page; all slots free. */
static int make(struct rnic_context *context, struct rnic_srq *srq, const struct ibv_srq_attr *attr)
{
	uint32_t slot, slots;
	size_t slot_bytes;
	int err;

	srq->max_sge = attr->max_sge ?: 1;
	srq->log_slots = rnic_log2_up(attr->max_wr);
	srq->log_stride = rnic_log2_up(srq->max_sge);
	slots = 1U << srq->log_slots;
	srq->wr_ids = calloc(slots, sizeof(*srq->wr_ids));
	srq->next_free = calloc(slots, sizeof(*srq->next_free));
	if (!srq->wr_ids || !srq->next_free)
		return ENOMEM;
	slot_bytes = align((size_t)RNIC_WQE_SEGMENT_BYTES << (srq->log_slots + srq->log_stride), context->page_bytes);
	err = rnic_pages_get(&srq->pages, slot_bytes + slots * sizeof(__le16), context->page_bytes);
	if (err)
		return err;
	srq->indices = (__le16 *)((uint8_t *)srq->pages.address + slot_bytes);
	for (slot = 0; slot < slots; slot++)
		srq->next_free[slot] = slot + 1;
	srq->free_slots = slots;
	return 0;
}

struct ibv_srq *rnic_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct rnic_context *context = to_rnic_context(pd->context);
	struct {
		struct ibv_create_srq core;
		struct rnic_ureq_create_srq ours;
	} command = {};
	struct {
		struct ib_uverbs_create_srq_resp core;
		struct rnic_uresp_create_srq ours;
	} answer = {};
	struct rnic_srq *srq;
	int err = EINVAL;

	if (!attr->attr.max_wr || attr->attr.max_wr > 1U << RNIC_MAX_LOG_SRQ_SLOTS ||
	    attr->attr.max_sge > context->limits.max_receive_sge)
		goto fail;
	err = ENOMEM;
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		goto fail;
	pthread_spin_init(&srq->lock, PTHREAD_PROCESS_PRIVATE);
	err = make(context, srq, &attr->attr);
	if (err)
		goto let_go;
	command.ours.wqe_address = (uintptr_t)srq->pages.address;
	command.ours.index_address = (uintptr_t)srq->indices;
	command.ours.log_slots = srq->log_slots;
	command.ours.log_stride = srq->log_stride;
	err = ibv_cmd_create_srq(pd, &srq->base, attr, &command.core, sizeof(command), &answer.core, sizeof(answer));
	if (err)
		goto let_go;
	srq->srqn = answer.ours.srqn;
	return &srq->base;

let_go:
	let_go(srq);
fail:
	errno = err;
	return NULL;
}

int rnic_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct ibv_modify_srq command = {};

	return ibv_cmd_modify_srq(srq, attr, mask, &command, sizeof(command));
}

int rnic_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct ibv_query_srq command = {};

	return ibv_cmd_query_srq(srq, attr, &command, sizeof(command));
}

int rnic_destroy_srq(struct ibv_srq *ibsrq)
{
	int err = ibv_cmd_destroy_srq(ibsrq);

	if (err)
		return err;
	let_go(to_rnic_srq(ibsrq));
	return 0;
}

static int post_one(struct rnic_srq *srq, const struct ibv_recv_wr *wr)
{
	uint16_t slot = srq->first_free;
	uint8_t *wqes = srq->pages.address;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > srq->max_sge)
		return EINVAL;
	if (!srq->free_slots)
		return ENOMEM;
	rnic_put_receive((struct rnic_data_segment *)(wqes + (((size_t)slot * RNIC_WQE_SEGMENT_BYTES) << srq->log_stride)),
			 srq->log_stride, wr);
	srq->first_free = srq->next_free[slot];
	srq->free_slots--;
	srq->wr_ids[slot] = wr->wr_id;
	srq->indices[srq->producer & ((1U << srq->log_slots) - 1)] = htole16(slot);
	srq->producer++;
	return 0;
}

int rnic_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct rnic_srq *srq = to_rnic_srq(ibsrq);
	uint16_t before;
	int err = 0;

	pthread_spin_lock(&srq->lock);
	before = srq->producer;
	for (; wr; wr = wr->next) {
		err = post_one(srq, wr);
		if (err) {
			*bad = wr;
			break;
		}
	}
	if (srq->producer != before)
		rnic_ring_doorbell(ibsrq->context, RNIC_DB_SRQ,
				   (uint64_t)srq->producer << 32 | (uint64_t)srq->srqn << 8);
	pthread_spin_unlock(&srq->lock);
	return err;
}

/* The slot's completion is taken, or is nobody's any more. */
uint64_t rnic_srq_free_slot(struct rnic_srq *srq, uint16_t slot)
{
	uint64_t wr_id;

	if (slot >= 1U << srq->log_slots)
		return 0;
	pthread_spin_lock(&srq->lock);
	wr_id = srq->wr_ids[slot];
	srq->next_free[slot] = srq->first_free;
	srq->first_free = slot;
	srq->free_slots++;
	pthread_spin_unlock(&srq->lock);
	return wr_id;
}
