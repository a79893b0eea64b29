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
static int make(struct rnic_context *context, struct ibv_pd *pd, struct rnic_srq *srq, const struct ibv_srq_attr *attr)
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
	err = rnic_pages_get(&srq->pages, pd, slot_bytes + slots * sizeof(__le16), context->page_bytes);
	if (err)
		return err;
	srq->indices = (__le16 *)((uint8_t *)srq->pages.address + slot_bytes);
	for (slot = 0; slot < slots; slot++)
		srq->next_free[slot] = slot + 1;
	srq->free_slots = slots;
	return 0;
}

/* The queue as the process sees it, and what the kernel is told of it. */
static struct rnic_srq *prepare(struct rnic_context *context, struct ibv_pd *pd, const struct ibv_srq_attr *attr,
				struct rnic_ureq_create_srq *request)
{
	struct rnic_srq *srq;
	int err;

	if (!attr->max_wr || attr->max_wr > 1U << RNIC_MAX_LOG_SRQ_SLOTS ||
	    attr->max_sge > context->limits.max_receive_sge) {
		errno = EINVAL;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq) {
		errno = ENOMEM;
		return NULL;
	}
	pthread_spin_init(&srq->lock, PTHREAD_PROCESS_PRIVATE);
	err = make(context, pd, srq, attr);
	if (err) {
		let_go(srq);
		errno = err;
		return NULL;
	}
	request->wqe_address = (uintptr_t)srq->pages.address;
	request->index_address = (uintptr_t)srq->indices;
	request->log_slots = srq->log_slots;
	request->log_stride = srq->log_stride;
	return srq;
}

struct ibv_srq *rnic_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct {
		struct ibv_create_srq core;
		struct rnic_ureq_create_srq ours;
	} command = {};
	struct {
		struct ib_uverbs_create_srq_resp core;
		struct rnic_uresp_create_srq ours;
	} answer = {};
	struct rnic_srq *srq = prepare(to_rnic_context(pd->context), pd, &attr->attr, &command.ours);
	int err;

	if (!srq)
		return NULL;
	err = ibv_cmd_create_srq(pd, &srq->base.srq, attr, &command.core, sizeof(command), &answer.core,
				 sizeof(answer));
	if (err) {
		let_go(srq);
		errno = err;
		return NULL;
	}
	srq->srqn = answer.ours.srqn;
	return &srq->base.srq;
}

/* Completions name queues of extended connections, since their queue pairs may be another process'. */
static int store(struct rnic_context *context, uint32_t srqn, struct rnic_srq *srq)
{
	struct rnic_srq ***row = &context->srq_rows[(srqn >> SRQ_ROW_SHIFT) & (SRQ_ROWS - 1)];
	int err = 0;

	pthread_mutex_lock(&context->table_lock);
	if (!*row)
		*row = calloc(1U << SRQ_ROW_SHIFT, sizeof(**row));
	if (*row)
		(*row)[srqn & SRQ_ROW_MASK] = srq;
	else
		err = ENOMEM;
	pthread_mutex_unlock(&context->table_lock);
	return err;
}

struct rnic_srq *rnic_find_srq(struct rnic_context *context, uint32_t srqn)
{
	struct rnic_srq **row = context->srq_rows[(srqn >> SRQ_ROW_SHIFT) & (SRQ_ROWS - 1)];

	return row ? row[srqn & SRQ_ROW_MASK] : NULL;
}

static struct ibv_srq *create_for_xrc(struct ibv_context *ibcontext, struct ibv_srq_init_attr_ex *attr)
{
	struct {
		struct ibv_create_xsrq core;
		struct rnic_ureq_create_srq ours;
	} command = {};
	struct {
		struct ib_uverbs_create_srq_resp core;
		struct rnic_uresp_create_srq ours;
	} answer = {};
	struct rnic_context *context = to_rnic_context(ibcontext);
	struct rnic_srq *srq = prepare(context, attr->pd, &attr->attr, &command.ours);
	int err;

	if (!srq)
		return NULL;
	err = ibv_cmd_create_srq_ex(ibcontext, &srq->base, attr, &command.core, sizeof(command), &answer.core,
				    sizeof(answer));
	if (err)
		goto let_go;
	srq->srqn = answer.ours.srqn;
	err = store(context, srq->srqn, srq);
	if (err)
		goto destroy;
	return &srq->base.srq;

destroy:
	ibv_cmd_destroy_srq(&srq->base.srq);
let_go:
	let_go(srq);
	errno = err;
	return NULL;
}

struct ibv_srq *rnic_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t xrc = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	struct ibv_srq_init_attr usual = { .srq_context = attr->srq_context, .attr = attr->attr };
	bool typed = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE;
	struct ibv_srq *srq;

	if (typed && attr->srq_type == IBV_SRQT_XRC && attr->comp_mask == (xrc | IBV_SRQ_INIT_ATTR_TYPE))
		return create_for_xrc(context, attr);
	if ((typed && attr->srq_type != IBV_SRQT_BASIC) ||
	    (attr->comp_mask & ~IBV_SRQ_INIT_ATTR_TYPE) != IBV_SRQ_INIT_ATTR_PD) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	srq = rnic_create_srq(attr->pd, &usual);
	attr->attr = usual.attr;
	return srq;
}

int rnic_get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
	if (to_rnic_srq(srq)->base.srq_type != IBV_SRQT_XRC)
		return EOPNOTSUPP;
	*number = to_rnic_srq(srq)->srqn;
	return 0;
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

/* The number may be another's already, made by another thread since. */
static void take_out(struct rnic_context *context, struct rnic_srq *srq)
{
	struct rnic_srq **row = context->srq_rows[(srq->srqn >> SRQ_ROW_SHIFT) & (SRQ_ROWS - 1)];

	pthread_mutex_lock(&context->table_lock);
	if (row[srq->srqn & SRQ_ROW_MASK] == srq)
		row[srq->srqn & SRQ_ROW_MASK] = NULL;
	pthread_mutex_unlock(&context->table_lock);
}

int rnic_destroy_srq(struct ibv_srq *ibsrq)
{
	struct rnic_srq *srq = to_rnic_srq(ibsrq);
	int err = ibv_cmd_destroy_srq(ibsrq);
	struct rnic_cq *cq;

	if (err)
		return err;
	if (srq->base.srq_type == IBV_SRQT_XRC) {
		cq = to_rnic_cq(srq->base.cq);
		pthread_spin_lock(&cq->lock);
		rnic_cq_forget_srq(cq, srq);
		take_out(to_rnic_context(ibsrq->context), srq);
		pthread_spin_unlock(&cq->lock);
	}
	let_go(srq);
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
