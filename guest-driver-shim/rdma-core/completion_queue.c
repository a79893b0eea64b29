// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Completion queues: their rings, and another ring in their stead. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rnic.h"

/* A ring takes whole pages, so it has at least the entries of one. */
static uint8_t log_entries_for(const struct rnic_context *context, uint32_t entries)
{
	uint8_t log = rnic_log2_up(entries);

	while (sizeof(struct rnic_cqe) << log < context->page_bytes)
		log++;
	return log;
}

static void let_go(struct rnic_cq *cq)
{
	pthread_spin_destroy(&cq->lock);
	rnic_pages_put(&cq->pages);
	rnic_pages_put(&cq->record_page);
	free(cq->old);
	free(cq);
}

static struct rnic_cq *make(struct rnic_context *context, struct ibv_pd *pd, uint32_t entries)
{
	struct rnic_cq *cq;
	int err;

	if (!entries || entries > 1U << context->limits.log_cq_entries) {
		errno = EINVAL;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq) {
		errno = ENOMEM;
		return NULL;
	}
	pthread_spin_init(&cq->lock, PTHREAD_PROCESS_PRIVATE);
	cq->pd = pd;
	cq->log_entries = log_entries_for(context, entries);
	err = rnic_pages_get(&cq->pages, pd, sizeof(struct rnic_cqe) << cq->log_entries, context->page_bytes);
	if (!err)
		err = rnic_pages_get(&cq->record_page, pd, sizeof(struct rnic_consumer_record), context->page_bytes);
	if (err) {
		let_go(cq);
		errno = err;
		return NULL;
	}
	cq->ring = cq->pages.address;
	cq->record = cq->record_page.address;
	return cq;
}

static struct rnic_ureq_create_cq request_of(const struct rnic_cq *cq)
{
	return (struct rnic_ureq_create_cq){
		.ring_address = (uintptr_t)cq->ring,
		.record_address = (uintptr_t)cq->record,
		.log_entries = cq->log_entries,
	};
}

struct ibv_cq *rnic_create_cq(struct ibv_context *ibcontext, int entries, struct ibv_comp_channel *channel,
			      int comp_vector)
{
	struct {
		struct ibv_create_cq core;
		struct rnic_ureq_create_cq ours;
	} command = {};
	struct {
		struct ib_uverbs_create_cq_resp core;
		struct rnic_uresp_create_cq ours;
	} answer = {};
	struct rnic_cq *cq = make(to_rnic_context(ibcontext), NULL, entries > 0 ? entries : 0);
	int err;

	if (!cq)
		return NULL;
	command.ours = request_of(cq);
	err = ibv_cmd_create_cq(ibcontext, entries, channel, comp_vector, &cq->base.cq, &command.core, sizeof(command),
				&answer.core, sizeof(answer));
	if (err) {
		let_go(cq);
		errno = err;
		return NULL;
	}
	cq->cqn = answer.ours.cqn;
	return &cq->base.cq;
}

struct ibv_cq_ex *rnic_create_cq_ex(struct ibv_context *ibcontext, struct ibv_cq_init_attr_ex *attr)
{
	struct {
		struct ibv_create_cq_ex core;
		struct rnic_ureq_create_cq ours;
	} command = {};
	struct {
		struct ib_uverbs_ex_create_cq_resp core;
		struct rnic_uresp_create_cq ours;
	} answer = {};
	struct ibv_pd *pd = NULL;
	struct rnic_cq *cq;
	int err;

	if (attr->wc_flags & ~(uint64_t)(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) ||
	    (attr->comp_mask & ~(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) ||
	    (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS && attr->flags & ~IBV_CREATE_CQ_ATTR_SINGLE_THREADED)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
		pd = attr->parent_domain;
		if (!pd || !to_rnic_pd(pd)->inside) {
			errno = EINVAL;
			return NULL;
		}
	}
	cq = make(to_rnic_context(ibcontext), pd, attr->cqe);
	if (!cq)
		return NULL;
	command.ours = request_of(cq);
	/* Entries carry the device's time anyway. */
	err = ibv_cmd_create_cq_ex(ibcontext, attr, RNIC_SINCE_65(NULL) &cq->base, &command.core, sizeof(command), &answer.core,
				   sizeof(answer), CREATE_CQ_CMD_FLAGS_TS_IGNORED_EX);
	if (err) {
		let_go(cq);
		errno = err;
		return NULL;
	}
	cq->cqn = answer.ours.cqn;
	rnic_cq_offer_extended(&cq->base.cq_ex);
	return &cq->base.cq_ex;
}

int rnic_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	struct ibv_modify_cq command = {};

	return ibv_cmd_modify_cq(cq, attr, &command, sizeof(command));
}

int rnic_destroy_cq(struct ibv_cq *ibcq)
{
	int err = ibv_cmd_destroy_cq(ibcq);

	if (err)
		return err;
	let_go(to_rnic_cq(ibcq));
	return 0;
}

/* Keeps what was not polled: it stands in the ring before. */
static int move_to(struct rnic_cq *cq, const struct rnic_pages *pages, uint8_t log_entries, struct rnic_cqe *kept,
		   uint32_t first_index)
{
	uint32_t index;

	udma_from_device_barrier();
	for (index = cq->consumer; index != first_index; index++)
		kept[index - cq->consumer] = *rnic_cq_entry(cq, index);
	free(cq->old);
	rnic_pages_put(&cq->pages);
	cq->old = kept;
	cq->old_begin = cq->consumer;
	cq->begin = first_index;
	cq->pages = *pages;
	cq->ring = pages->address;
	cq->log_entries = log_entries;
	return 0;
}

/* The poller waits meanwhile: so there is no moment with two rings that it would have to know of. */
int rnic_resize_cq(struct ibv_cq *ibcq, int entries)
{
	struct rnic_context *context = to_rnic_context(ibcq->context);
	struct {
		struct ibv_resize_cq core;
		struct rnic_ureq_resize_cq ours;
	} command = {};
	struct {
		struct ib_uverbs_resize_cq_resp core;
		struct rnic_uresp_resize_cq ours;
	} answer = {};
	struct rnic_cq *cq = to_rnic_cq(ibcq);
	struct rnic_pages pages = {};
	struct rnic_cqe *kept = NULL;
	uint8_t log;
	int err;

	if (entries <= 0 || (uint32_t)entries > 1U << context->limits.log_cq_entries)
		return EINVAL;
	log = log_entries_for(context, entries);
	err = rnic_pages_get(&pages, cq->pd, sizeof(struct rnic_cqe) << log, context->page_bytes);
	if (err)
		return err;
	command.ours.ring_address = (uintptr_t)pages.address;
	command.ours.log_entries = log;
	pthread_spin_lock(&cq->lock);
	/* All that can wait to be polled: the ring, and what a resizing before kept. */
	kept = calloc((size_t)(1U << cq->log_entries) +
			      ((int32_t)(cq->begin - cq->consumer) > 0 ? cq->begin - cq->consumer : 0),
		      sizeof(*kept));
	err = kept ? ibv_cmd_resize_cq(ibcq, entries, &command.core, sizeof(command), &answer.core, sizeof(answer)) :
		     ENOMEM;
	if (!err)
		err = move_to(cq, &pages, log, kept, answer.ours.first_index);
	pthread_spin_unlock(&cq->lock);
	if (err) {
		free(kept);
		rnic_pages_put(&pages);
	}
	return err;
}
