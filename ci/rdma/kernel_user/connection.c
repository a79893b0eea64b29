// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Two queue pairs of one device, connected with each other, and work that somebody waits for. */
#include "stage.h"

#include <rdma/ib_cache.h>

static void done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct work *work = container_of(wc->wr_cqe, struct work, cqe);

	work->wc = *wc;
	complete(&work->done);
}

void prepare(struct work *work)
{
	memset(work, 0, sizeof(*work));
	work->cqe.done = done;
	init_completion(&work->done);
}

int await(struct work *work, enum ib_wc_status status, const char *what)
{
	FAIL_UNLESS(wait_for_completion_timeout(&work->done, LIMIT), "%s: no completion\n", what);
	FAIL_UNLESS(work->wc.status == status, "%s: status %s\n", what, ib_wc_status_msg(work->wc.status));
	return 0;
}

static int open_side(struct stage *stage, struct side *side, struct ib_cq *send_cq)
{
	struct ib_qp_init_attr attr = {
		.send_cq = send_cq,
		.recv_cq = stage->cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 3, .max_recv_sge = 3,
			 .max_inline_data = 64 },
		.qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
	};

	side->buffer = kzalloc(BUFFER_BYTES, GFP_KERNEL);
	FAIL_UNLESS(side->buffer, "no memory\n");
	side->address = ib_dma_map_single(stage->device, side->buffer, BUFFER_BYTES, DMA_BIDIRECTIONAL);
	FAIL_UNLESS(!ib_dma_mapping_error(stage->device, side->address), "the buffer is not mapped\n");
	side->qp = ib_create_qp(stage->pd, &attr);
	if (IS_ERR(side->qp)) {
		pr_err("no queue pair: %pe\n", side->qp);
		side->qp = NULL;
		return -EIO;
	}
	return 0;
}

static int connect(struct stage *stage, struct side *side, const struct side *peer)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT, .port_num = 1,
				   .qp_access_flags = IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ };
	union ib_gid gid;
	int err;

	err = ib_modify_qp(side->qp, &attr, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS);
	FAIL_UNLESS(!err, "INIT: %d\n", err);
	err = rdma_query_gid(stage->device, 1, 0, &gid);
	FAIL_UNLESS(!err, "no GID: %d\n", err);
	attr.qp_state = IB_QPS_RTR;
	attr.path_mtu = IB_MTU_1024;
	attr.dest_qp_num = peer->qp->qp_num;
	attr.rq_psn = 7;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 12;
	attr.ah_attr.type = RDMA_AH_ATTR_TYPE_ROCE;
	rdma_ah_set_port_num(&attr.ah_attr, 1);
	rdma_ah_set_grh(&attr.ah_attr, &gid, 0, 0, 64, 0);
	err = ib_modify_qp(side->qp, &attr, IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN |
			   IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER);
	FAIL_UNLESS(!err, "RTR: %d\n", err);
	attr.qp_state = IB_QPS_RTS;
	attr.sq_psn = 7;
	attr.timeout = 18;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	err = ib_modify_qp(side->qp, &attr, IB_QP_STATE | IB_QP_SQ_PSN | IB_QP_TIMEOUT | IB_QP_RETRY_CNT |
			   IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC);
	FAIL_UNLESS(!err, "RTS: %d\n", err);
	return 0;
}

int open_pair(struct stage *stage, struct side sides[2], struct ib_cq *send_cq)
{
	return open_side(stage, &sides[0], send_cq) ?: open_side(stage, &sides[1], send_cq) ?:
	       connect(stage, &sides[0], &sides[1]) ?: connect(stage, &sides[1], &sides[0]);
}

void close_pair(struct stage *stage, struct side sides[2])
{
	struct side *side;

	for (side = sides; side < sides + 2; side++) {
		if (side->qp)
			ib_destroy_qp(side->qp);
		if (side->address)
			ib_dma_unmap_single(stage->device, side->address, BUFFER_BYTES, DMA_BIDIRECTIONAL);
		kfree(side->buffer);
	}
}
