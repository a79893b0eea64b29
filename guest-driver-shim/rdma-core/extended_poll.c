// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Polling one completion after the other, field by field: what ibv_create_cq_ex promises. */
#include <errno.h>

#include "rnic.h"

static struct rnic_cq *to_cq(struct ibv_cq_ex *cq)
{
	return to_rnic_cq(ibv_cq_ex_to_cq(cq));
}

static int next_poll(struct ibv_cq_ex *ibcq)
{
	struct rnic_cq *cq = to_cq(ibcq);

	if (!rnic_cq_take(cq, &cq->current, &cq->current_time))
		return ENOENT;
	ibcq->wr_id = cq->current.wr_id;
	ibcq->status = cq->current.status;
	return 0;
}

static void end_poll(struct ibv_cq_ex *ibcq)
{
	struct rnic_cq *cq = to_cq(ibcq);

	rnic_cq_tell_consumer(cq);
	pthread_spin_unlock(&cq->lock);
}

static int start_poll(struct ibv_cq_ex *ibcq, struct ibv_poll_cq_attr *attr)
{
	int err;

	if (attr->comp_mask)
		return EINVAL;
	pthread_spin_lock(&to_cq(ibcq)->lock);
	err = next_poll(ibcq);
	/* Nothing was begun, so nobody ends it. */
	if (err)
		end_poll(ibcq);
	return err;
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq)
{
	return to_cq(cq)->current.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *cq)
{
	return to_cq(cq)->current.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq)
{
	return to_cq(cq)->current.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *cq)
{
	return to_cq(cq)->current.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *cq)
{
	return to_cq(cq)->current.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *cq)
{
	return to_cq(cq)->current.src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cq)
{
	return to_cq(cq)->current.wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *cq)
{
	return to_cq(cq)->current.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *cq)
{
	return to_cq(cq)->current.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *cq)
{
	return to_cq(cq)->current.dlid_path_bits;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *cq)
{
	return to_cq(cq)->current_time;
}

void rnic_cq_offer_extended(struct ibv_cq_ex *cq)
{
	cq->start_poll = start_poll;
	cq->next_poll = next_poll;
	cq->end_poll = end_poll;
	cq->read_opcode = read_opcode;
	cq->read_vendor_err = read_vendor_err;
	cq->read_byte_len = read_byte_len;
	cq->read_imm_data = read_imm_data;
	cq->read_qp_num = read_qp_num;
	cq->read_src_qp = read_src_qp;
	cq->read_wc_flags = read_wc_flags;
	cq->read_slid = read_slid;
	cq->read_sl = read_sl;
	cq->read_dlid_path_bits = read_dlid_path_bits;
	cq->read_completion_ts = read_completion_ts;
}
