// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A user of RDMA inside the kernel, for tests: when it is loaded it connects two queue pairs of the first rnic device to
 * each other, sends and writes between them, looks at every byte, and goes to ERROR with work outstanding. Loading it
 * fails if anything was not as it should be, and the kernel log says what.
 */
#include <linux/completion.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#define ROUNDS 150
#define BUFFER_BYTES 8192
#define DEPTH 16
#define LIMIT (20 * HZ)

struct side {
	struct ib_qp *qp;
	u8 *buffer;
	u64 address;
};

struct work {
	struct ib_cqe cqe;
	struct completion done;
	struct ib_wc wc;
};

struct stage {
	struct ib_device *device;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct side sides[2];
};

static int outcome = -ENODEV;

#define FAIL_UNLESS(condition, ...)                  \
	do {                                         \
		if (!(condition)) {                  \
			pr_err(__VA_ARGS__);         \
			return -EIO;                 \
		}                                    \
	} while (0)

static void done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct work *work = container_of(wc->wr_cqe, struct work, cqe);

	work->wc = *wc;
	complete(&work->done);
}

static void prepare(struct work *work)
{
	memset(work, 0, sizeof(*work));
	work->cqe.done = done;
	init_completion(&work->done);
}

static int await(struct work *work, enum ib_wc_status status, const char *what)
{
	FAIL_UNLESS(wait_for_completion_timeout(&work->done, LIMIT), "%s: no completion\n", what);
	FAIL_UNLESS(work->wc.status == status, "%s: status %s\n", what, ib_wc_status_msg(work->wc.status));
	return 0;
}

static int open_side(struct stage *stage, struct side *side)
{
	struct ib_qp_init_attr attr = {
		.send_cq = stage->cq,
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
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT, .port_num = 1, .qp_access_flags = IB_ACCESS_REMOTE_WRITE };
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

/* A SEND of three elements into a receive of two, or an inline one with an immediate, by turns. */
static int send_once(struct stage *stage, struct side *from, struct side *to, u32 round)
{
	u32 lkey = stage->pd->local_dma_lkey, half = BUFFER_BYTES / 2, index;
	bool small = round & 1;
	u32 bytes = small ? 40 : 3000;
	struct ib_sge target[2] = { { to->address, 100, lkey }, { to->address + 100, half - 100, lkey } };
	struct ib_sge elements[3] = { { from->address + half, 1, lkey }, { from->address + half + 1, 1999, lkey },
				      { from->address + half + 2000, 1000, lkey } };
	struct ib_sge whole = { (uintptr_t)(from->buffer + half), bytes, 0 };
	struct work sent, received;
	struct ib_recv_wr receive = { .wr_cqe = &received.cqe, .sg_list = target, .num_sge = 2 };
	struct ib_send_wr send = { .wr_cqe = &sent.cqe, .sg_list = small ? &whole : elements, .num_sge = small ? 1 : 3,
				   .opcode = small ? IB_WR_SEND_WITH_IMM : IB_WR_SEND,
				   .send_flags = IB_SEND_SIGNALED | (small ? IB_SEND_INLINE : 0),
				   .ex.imm_data = cpu_to_be32(round) };
	int err;

	prepare(&sent);
	prepare(&received);
	memset(to->buffer, 0xa5, half);
	for (index = 0; index < bytes; index++)
		from->buffer[half + index] = round * 7 + index * 13;
	err = ib_post_recv(to->qp, &receive, NULL);
	FAIL_UNLESS(!err, "a receive is refused: %d\n", err);
	err = ib_post_send(from->qp, &send, NULL);
	FAIL_UNLESS(!err, "a send is refused: %d\n", err);
	err = await(&sent, IB_WC_SUCCESS, "send") ?: await(&received, IB_WC_SUCCESS, "receive");
	if (err)
		return err;
	FAIL_UNLESS(received.wc.byte_len == bytes && received.wc.opcode == IB_WC_RECV, "the receive says %u bytes\n",
		    received.wc.byte_len);
	FAIL_UNLESS(received.wc.qp == to->qp && sent.wc.qp == from->qp, "completions of another queue pair\n");
	FAIL_UNLESS(!small || (received.wc.wc_flags & IB_WC_WITH_IMM && received.wc.ex.imm_data == send.ex.imm_data),
		    "the immediate is wrong\n");
	FAIL_UNLESS(!memcmp(to->buffer, from->buffer + half, bytes) && to->buffer[bytes] == 0xa5,
		    "round %u: the bytes are wrong\n", round);
	return 0;
}

/* Two unsignaled WRITEs and a signaled one in one list. */
static int write_thrice(struct stage *stage, struct side *from, struct side *to, u32 round)
{
	u32 half = BUFFER_BYTES / 2, index;
	struct ib_rdma_wr writes[3] = {};
	struct ib_sge elements[3];
	struct work last;
	int err;

	prepare(&last);
	memset(to->buffer, 0, half);
	for (index = 0; index < 3; index++) {
		memset(from->buffer + half + 100 * index, round + index, 100);
		elements[index] = (struct ib_sge){ from->address + half + 100 * index, 100, stage->pd->local_dma_lkey };
		writes[index].wr.opcode = IB_WR_RDMA_WRITE;
		writes[index].wr.sg_list = &elements[index];
		writes[index].wr.num_sge = 1;
		writes[index].wr.wr_cqe = &last.cqe;
		writes[index].remote_addr = to->address + 100 * index;
		writes[index].rkey = stage->pd->unsafe_global_rkey;
		if (index < 2)
			writes[index].wr.next = &writes[index + 1].wr;
	}
	writes[2].wr.send_flags = IB_SEND_SIGNALED;
	err = ib_post_send(from->qp, &writes[0].wr, NULL);
	FAIL_UNLESS(!err, "a list of writes is refused: %d\n", err);
	err = await(&last, IB_WC_SUCCESS, "writes");
	if (err)
		return err;
	FAIL_UNLESS(last.wc.opcode == IB_WC_RDMA_WRITE, "the completion is of opcode %d\n", last.wc.opcode);
	FAIL_UNLESS(!memcmp(to->buffer, from->buffer + half, 300), "round %u: the written bytes are wrong\n", round);
	return 0;
}

/* In ERROR everything posted is flushed. */
static int fail_outstanding(struct side *side)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	struct ib_recv_wr receives[2] = {};
	struct work flushed[2];
	int index, err;

	for (index = 0; index < 2; index++) {
		prepare(&flushed[index]);
		receives[index].wr_cqe = &flushed[index].cqe;
		err = ib_post_recv(side->qp, &receives[index], NULL);
		FAIL_UNLESS(!err, "a receive is refused: %d\n", err);
	}
	err = ib_modify_qp(side->qp, &attr, IB_QP_STATE);
	FAIL_UNLESS(!err, "ERR: %d\n", err);
	err = await(&flushed[0], IB_WC_WR_FLUSH_ERR, "flush") ?: await(&flushed[1], IB_WC_WR_FLUSH_ERR, "flush");
	if (!err)
		ib_drain_qp(side->qp);
	return err;
}

static int play(struct stage *stage)
{
	u32 round;
	int err;

	stage->pd = ib_alloc_pd(stage->device, IB_PD_UNSAFE_GLOBAL_RKEY);
	if (IS_ERR(stage->pd)) {
		err = PTR_ERR(stage->pd);
		stage->pd = NULL;
		pr_err("no protection domain: %d\n", err);
		return err;
	}
	stage->cq = ib_alloc_cq(stage->device, NULL, 4 * DEPTH, 0, IB_POLL_WORKQUEUE);
	if (IS_ERR(stage->cq)) {
		err = PTR_ERR(stage->cq);
		stage->cq = NULL;
		pr_err("no completion queue: %d\n", err);
		return err;
	}
	err = open_side(stage, &stage->sides[0]) ?: open_side(stage, &stage->sides[1]);
	if (!err)
		err = connect(stage, &stage->sides[0], &stage->sides[1]);
	if (!err)
		err = connect(stage, &stage->sides[1], &stage->sides[0]);
	for (round = 0; !err && round < ROUNDS; round++)
		err = send_once(stage, &stage->sides[round / 2 & 1], &stage->sides[~(round / 2) & 1], round) ?:
		      write_thrice(stage, &stage->sides[round & 1], &stage->sides[~round & 1], round);
	return err ?: fail_outstanding(&stage->sides[0]) ?: fail_outstanding(&stage->sides[1]);
}

static void close_stage(struct stage *stage)
{
	int index;

	for (index = 0; index < 2; index++) {
		struct side *side = &stage->sides[index];

		if (side->qp)
			ib_destroy_qp(side->qp);
		if (side->address)
			ib_dma_unmap_single(stage->device, side->address, BUFFER_BYTES, DMA_BIDIRECTIONAL);
		kfree(side->buffer);
	}
	if (stage->cq)
		ib_free_cq(stage->cq);
	if (stage->pd)
		ib_dealloc_pd(stage->pd);
}

static int add_device(struct ib_device *device)
{
	struct stage *stage;

	if (strncmp(dev_name(&device->dev), "rnic", 4))
		return -EOPNOTSUPP;
	stage = kzalloc(sizeof(*stage), GFP_KERNEL);
	if (!stage)
		return -ENOMEM;
	stage->device = device;
	outcome = play(stage);
	close_stage(stage);
	kfree(stage);
	return outcome;
}

static struct ib_client client = { .name = "rnic_kernel_user", .add = add_device };

static int __init kernel_user_init(void)
{
	int err = ib_register_client(&client);

	if (err)
		return err;
	if (outcome) {
		ib_unregister_client(&client);
		return outcome;
	}
	pr_info("rnic_kernel_user: %u rounds were right\n", ROUNDS);
	return 0;
}

static void __exit kernel_user_exit(void)
{
	ib_unregister_client(&client);
}

module_init(kernel_user_init);
module_exit(kernel_user_exit);
MODULE_DESCRIPTION("Test of rnic's verbs inside the kernel");
MODULE_LICENSE("Dual BSD/GPL");
