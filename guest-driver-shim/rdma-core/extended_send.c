// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Posting call by call, from ibv_wr_start to ibv_wr_complete. What the calls say is gathered into one work request, which is
 * written into the ring when the next one begins; the doorbell is rung once, at the end.
 */
#include <errno.h>
#include <string.h>

#include "rnic.h"

static struct rnic_qp *to_qp(struct ibv_qp_ex *qp)
{
	return container_of(qp, struct rnic_qp, base.qp_ex);
}

/* Writes what was gathered. */
static void flush(struct rnic_qp *qp)
{
	struct rnic_builder *builder = &qp->builder;

	if (!builder->open)
		return;
	builder->open = false;
	if (!builder->err)
		builder->err = rnic_post_one_send(qp, &builder->wr, &builder->flush);
}

static struct ibv_send_wr *begin(struct ibv_qp_ex *ibqp, enum ibv_wr_opcode opcode)
{
	struct rnic_qp *qp = to_qp(ibqp);
	struct ibv_send_wr *wr = &qp->builder.wr;

	flush(qp);
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = ibqp->wr_id;
	wr->send_flags = ibqp->wr_flags & ~IBV_SEND_INLINE;
	wr->opcode = opcode;
	wr->sg_list = qp->builder.sge;
	qp->builder.open = true;
	return wr;
}

static void wr_send(struct ibv_qp_ex *qp)
{
	begin(qp, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm_data)
{
	begin(qp, IBV_WR_SEND_WITH_IMM)->imm_data = imm_data;
}

static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	begin(qp, IBV_WR_SEND_WITH_INV)->invalidate_rkey = rkey;
}

static struct ibv_send_wr *begin_rdma(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t address)
{
	struct ibv_send_wr *wr = begin(qp, opcode);

	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = address;
	return wr;
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address)
{
	begin_rdma(qp, IBV_WR_RDMA_WRITE, rkey, address);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, __be32 imm_data)
{
	begin_rdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address)->imm_data = imm_data;
}

static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address)
{
	begin_rdma(qp, IBV_WR_RDMA_READ, rkey, address);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap)
{
	struct ibv_send_wr *wr = begin(qp, IBV_WR_ATOMIC_CMP_AND_SWP);

	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = address;
	wr->wr.atomic.compare_add = compare;
	wr->wr.atomic.swap = swap;
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, uint64_t add)
{
	struct ibv_send_wr *wr = begin(qp, IBV_WR_ATOMIC_FETCH_AND_ADD);

	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = address;
	wr->wr.atomic.compare_add = add;
}

/* The word is the caller's again when this returns. */
static void wr_atomic_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, const void *word)
{
	struct ibv_send_wr *wr = begin_rdma(qp, IBV_WR_ATOMIC_WRITE, rkey, address);
	struct rnic_builder *builder = &to_qp(qp)->builder;

	memcpy(builder->bytes, word, RNIC_ATOMIC_BYTES);
	builder->sge[0] = (struct ibv_sge){ .addr = (uintptr_t)builder->bytes, .length = RNIC_ATOMIC_BYTES };
	wr->num_sge = 1;
	wr->send_flags |= IBV_SEND_INLINE;
}

static_assert(IBV_FLUSH_GLOBAL == RNIC_FLUSH_GLOBAL && IBV_FLUSH_PERSISTENT == RNIC_FLUSH_PERSISTENT,
	      "the placements of a flush");

/* Of a whole region neither address nor length counts. */
static void wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, size_t length, uint8_t type, uint8_t level)
{
	struct rnic_builder *builder = &to_qp(qp)->builder;
	bool region = level == IBV_FLUSH_MR;

	begin_rdma(qp, IBV_WR_FLUSH, rkey, region ? 0 : address);
	if ((level != IBV_FLUSH_RANGE && !region) || (!region && length > UINT32_MAX) ||
	    type & ~(IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT)) {
		builder->err = EINVAL;
		return;
	}
	builder->flush = (struct rnic_flush_segment){
		.length_bytes = htole32(region ? 0 : length),
		.placement = htole32(type | (region ? RNIC_FLUSH_REGION : 0)),
	};
}

static void wr_local_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	begin(qp, IBV_WR_LOCAL_INV)->invalidate_rkey = rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = begin(qp, IBV_WR_BIND_MW);

	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

static void wr_set_ud_addr(struct ibv_qp_ex *ibqp, struct ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct ibv_send_wr *wr = &to_qp(ibqp)->builder.wr;

	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = remote_qpn;
	wr->wr.ud.remote_qkey = remote_qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ibqp, uint32_t remote_srqn)
{
	to_qp(ibqp)->builder.wr.qp_type.xrc.remote_srqn = remote_srqn;
}

static void wr_set_sge_list(struct ibv_qp_ex *ibqp, size_t count, const struct ibv_sge *list)
{
	struct rnic_builder *builder = &to_qp(ibqp)->builder;

	if (count > to_qp(ibqp)->sq.max_sge || count > RNIC_BUILDER_SGE) {
		builder->err = EINVAL;
		return;
	}
	memcpy(builder->sge, list, count * sizeof(*list));
	builder->wr.num_sge = count;
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t address, uint32_t length)
{
	struct ibv_sge sge = { .addr = address, .length = length, .lkey = lkey };

	wr_set_sge_list(qp, 1, &sge);
}

/* The bytes are the caller's again when this returns. */
static void wr_set_inline_data_list(struct ibv_qp_ex *ibqp, size_t count, const struct ibv_data_buf *list)
{
	struct rnic_builder *builder = &to_qp(ibqp)->builder;
	size_t bytes = 0, index;

	for (index = 0; index < count; index++) {
		if (list[index].length > sizeof(builder->bytes) - bytes) {
			builder->err = ENOMEM;
			return;
		}
		memcpy(builder->bytes + bytes, list[index].addr, list[index].length);
		bytes += list[index].length;
	}
	builder->sge[0] = (struct ibv_sge){ .addr = (uintptr_t)builder->bytes, .length = bytes };
	builder->wr.num_sge = 1;
	builder->wr.send_flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *address, size_t length)
{
	struct ibv_data_buf data = { .addr = address, .length = length };

	wr_set_inline_data_list(qp, 1, &data);
}

static void wr_start(struct ibv_qp_ex *ibqp)
{
	struct rnic_qp *qp = to_qp(ibqp);

	pthread_spin_lock(&qp->sq.lock);
	qp->builder.open = false;
	qp->builder.err = rnic_takes_sends(qp) ? 0 : EINVAL;
	qp->builder.before = qp->sq.producer;
}

static void wr_abort(struct ibv_qp_ex *ibqp)
{
	struct rnic_qp *qp = to_qp(ibqp);

	qp->sq.producer = qp->builder.before;
	pthread_spin_unlock(&qp->sq.lock);
}

/* All of it or nothing. */
static int wr_complete(struct ibv_qp_ex *ibqp)
{
	struct rnic_qp *qp = to_qp(ibqp);
	int err;

	flush(qp);
	err = qp->builder.err;
	if (err)
		qp->sq.producer = qp->builder.before;
	else if (qp->sq.producer != qp->builder.before)
		rnic_announce_sends(qp);
	pthread_spin_unlock(&qp->sq.lock);
	return err;
}

#define ON_DATAGRAMS (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define ON_UNRELIABLE                                                                              \
	(ON_DATAGRAMS | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |           \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)
#define ON_RELIABLE                                                                                \
	(ON_UNRELIABLE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |            \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV)

int rnic_offer_extended_send(struct rnic_qp *qp, uint64_t features, uint64_t operations)
{
	enum ibv_qp_type type = qp->base.qp.qp_type;
	uint64_t known = type == IBV_QPT_UD ? ON_DATAGRAMS : type == IBV_QPT_UC ? ON_UNRELIABLE : ON_RELIABLE;
	struct ibv_qp_ex *ex = &qp->base.qp_ex;

	if (type == IBV_QPT_RC && features & RNIC_FEATURE_FLUSH)
		known |= IBV_QP_EX_WITH_FLUSH;
	if (type == IBV_QPT_RC && features & RNIC_FEATURE_ATOMIC_WRITE)
		known |= IBV_QP_EX_WITH_ATOMIC_WRITE;
	if (operations & ~known)
		return EOPNOTSUPP;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_atomic_write = wr_atomic_write;
	ex->wr_flush = wr_flush;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	qp->base.comp_mask |= VERBS_QP_EX;
	return 0;
}
