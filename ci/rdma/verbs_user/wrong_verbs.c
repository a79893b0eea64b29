// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A program for tests: every verb is given keys, sizes, states and flags that are wrong, one at a time, and has to give the
 * error that real hardware gives. Two queue pairs of one device are each other's peer; a case that ends them begins with new
 * ones. What goes wrong is told, all of it, and makes the exit number 1.
 *
 *	rnic_wrong_verbs -d rnic0 -g 1
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BYTES 8192
#define LIMIT_S 60
#define DEPTH 16
#define ALL_RIGHTS \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK                                                                             \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |       \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)

static struct ibv_context *context;
static struct ibv_device_attr limits;
static struct ibv_pd *pd, *other_pd;
static struct ibv_cq *cqs[2];
static struct ibv_mr *mr, *other_mr, *read_only;
static struct ibv_qp *qps[2];
static uint8_t *buffer;
static int gid_index, cases, wrong;
static union ibv_gid gid;

/* A call gave this error number, or none. */
static void gave(const char *what, int expected, int err)
{
	cases++;
	if (err == expected)
		return;
	wrong++;
	printf("%s: %d (%s), and not %d (%s)\n", what, err, strerror(err), expected, strerror(expected));
}

/* A call that makes something: what it made by mistake stays, and the end of the program takes it. */
#define MADE(what, expected, call)                                       \
	do {                                                             \
		errno = 0;                                               \
		gave(what, expected, (call) ? 0 : errno);                \
	} while (0)

static void must(const char *what, bool well)
{
	if (well)
		return;
	printf("%s: %s\n", what, strerror(errno));
	exit(2);
}

static struct ibv_qp *new_qp(int side)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cqs[side],
		.recv_cq = cqs[side],
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 2,
			 .max_inline_data = 64 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	must("a queue pair", qp);
	return qp;
}

static struct ibv_qp_attr init_attr(int rights)
{
	return (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights };
}

static struct ibv_qp_attr rtr_attr(uint32_t peer)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = { .port_num = 1, .is_global = 1,
			     .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 1 } },
	};
}

/* Both ends anew and ready; the second has these rights to give. */
static void connect_anew(int rights)
{
	struct ibv_qp_attr init = init_attr(rights), rtr, rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 1,
								  .max_rd_atomic = 1 };
	struct ibv_wc wc;
	int side;

	for (side = 0; side < 2; side++) {
		if (qps[side])
			must("the end of a queue pair", !ibv_destroy_qp(qps[side]));
		while (ibv_poll_cq(cqs[side], 1, &wc) > 0)
			;
		qps[side] = new_qp(side);
		must("INIT", !ibv_modify_qp(qps[side], &init, INIT_MASK));
	}
	for (side = 0; side < 2; side++) {
		rtr = rtr_attr(qps[!side]->qp_num);
		must("RTR", !ibv_modify_qp(qps[side], &rtr, RTR_MASK));
		must("RTS", !ibv_modify_qp(qps[side], &rts, RTS_MASK));
	}
}

static enum ibv_wc_status completion(int side)
{
	time_t end = time(NULL) + LIMIT_S;
	struct ibv_wc wc;

	while (time(NULL) < end)
		if (ibv_poll_cq(cqs[side], 1, &wc) > 0)
			return wc.status;
	return (enum ibv_wc_status)-1;
}

static void completed(const char *what, int side, enum ibv_wc_status expected)
{
	enum ibv_wc_status status = completion(side);

	cases++;
	if (status == expected)
		return;
	wrong++;
	printf("%s, side %d: %s, and not %s\n", what, side,
	       (int)status < 0 ? "nothing" : ibv_wc_status_str(status), ibv_wc_status_str(expected));
}

static int send(enum ibv_wr_opcode opcode, uint32_t lkey, uint32_t bytes, uint32_t rkey, uint64_t at)
{
	struct ibv_sge sge = { .addr = (uintptr_t)buffer, .length = bytes, .lkey = lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = at;
	wr.wr.rdma.rkey = rkey;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = at;
		wr.wr.atomic.rkey = rkey;
	}
	return ibv_post_send(qps[0], &wr, &bad);
}

static int receive(uint32_t lkey, uint32_t bytes)
{
	struct ibv_sge sge = { .addr = (uintptr_t)buffer + BYTES / 2, .length = bytes, .lkey = lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(qps[1], &wr, &bad);
}

/* Of work requests that are posted: the requester's status, and the responder's if it is told of one. */
static void transfers(void)
{
	const uint64_t at = (uintptr_t)buffer + BYTES / 2;
	const uint32_t none = 0xffffff07;
	struct {
		const char *what;
		enum ibv_wr_opcode opcode;
		uint32_t lkey, bytes, rkey;
		uint64_t at;
		int rights;
		enum ibv_wc_status status;
	} requests[] = {
		{ "WRITE from a key that does not exist", IBV_WR_RDMA_WRITE, none, 8, mr->rkey, at, ALL_RIGHTS,
		  IBV_WC_LOC_PROT_ERR },
		{ "WRITE from a key of another domain", IBV_WR_RDMA_WRITE, other_mr->lkey, 8, mr->rkey, at, ALL_RIGHTS,
		  IBV_WC_LOC_PROT_ERR },
		{ "WRITE from beyond its region", IBV_WR_RDMA_WRITE, mr->lkey, BYTES + 1, mr->rkey, at, ALL_RIGHTS,
		  IBV_WC_LOC_PROT_ERR },
		{ "READ into a region without the right", IBV_WR_RDMA_READ, read_only->lkey, 8, mr->rkey, at, ALL_RIGHTS,
		  IBV_WC_LOC_PROT_ERR },
		{ "WRITE to a key that does not exist", IBV_WR_RDMA_WRITE, mr->lkey, 8, none, at, ALL_RIGHTS,
		  IBV_WC_REM_ACCESS_ERR },
		{ "WRITE to a key of another domain", IBV_WR_RDMA_WRITE, mr->lkey, 8, other_mr->rkey, at, ALL_RIGHTS,
		  IBV_WC_REM_ACCESS_ERR },
		{ "WRITE to beyond its region", IBV_WR_RDMA_WRITE, mr->lkey, 8, mr->rkey, at + BYTES, ALL_RIGHTS,
		  IBV_WC_REM_ACCESS_ERR },
		{ "WRITE to a region without the right", IBV_WR_RDMA_WRITE, mr->lkey, 8, read_only->rkey, at, ALL_RIGHTS,
		  IBV_WC_REM_ACCESS_ERR },
		{ "READ of a region without the right", IBV_WR_RDMA_READ, mr->lkey, 8, read_only->rkey, at, ALL_RIGHTS,
		  IBV_WC_REM_ACCESS_ERR },
		{ "WRITE that the queue pair does not allow", IBV_WR_RDMA_WRITE, mr->lkey, 8, mr->rkey, at,
		  IBV_ACCESS_REMOTE_READ, IBV_WC_REM_INV_REQ_ERR },
		{ "atomic that is not aligned", IBV_WR_ATOMIC_FETCH_AND_ADD, mr->lkey, 8, mr->rkey, at + 4, ALL_RIGHTS,
		  IBV_WC_REM_INV_REQ_ERR },
		{ "atomic of a region without the right", IBV_WR_ATOMIC_FETCH_AND_ADD, mr->lkey, 8, read_only->rkey, at,
		  ALL_RIGHTS, IBV_WC_REM_ACCESS_ERR },
		{ "SEND that nobody receives", IBV_WR_SEND, mr->lkey, 8, 0, 0, ALL_RIGHTS, IBV_WC_RNR_RETRY_EXC_ERR },
	};
	unsigned int number;

	for (number = 0; number < sizeof(requests) / sizeof(requests[0]); number++) {
		connect_anew(requests[number].rights);
		gave(requests[number].what, 0,
		     send(requests[number].opcode, requests[number].lkey, requests[number].bytes, requests[number].rkey,
			  requests[number].at));
		completed(requests[number].what, 0, requests[number].status);
		/* Whatever is posted after it is flushed. */
		gave("a SEND in ERR", 0, send(IBV_WR_SEND, mr->lkey, 8, 0, 0));
		completed("a SEND in ERR", 0, IBV_WC_WR_FLUSH_ERR);
	}
	connect_anew(ALL_RIGHTS);
	gave("a short receive", 0, receive(mr->lkey, 8));
	gave("a SEND that is too long", 0, send(IBV_WR_SEND, mr->lkey, 9, 0, 0));
	completed("a SEND that is too long", 0, IBV_WC_REM_INV_REQ_ERR);
	completed("a SEND that is too long", 1, IBV_WC_LOC_LEN_ERR);
	connect_anew(ALL_RIGHTS);
	gave("a receive into a wrong key", 0, receive(none, 8));
	gave("a SEND into a wrong key", 0, send(IBV_WR_SEND, mr->lkey, 8, 0, 0));
	completed("a SEND into a wrong key", 0, IBV_WC_REM_OP_ERR);
	completed("a SEND into a wrong key", 1, IBV_WC_LOC_PROT_ERR);
}

static int post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, int elements, uint32_t bytes, unsigned int flags)
{
	struct ibv_sge sge[4] = { { .addr = (uintptr_t)buffer, .length = bytes, .lkey = mr->lkey } };
	struct ibv_send_wr wr = { .sg_list = sge, .num_sge = elements, .opcode = opcode, .send_flags = flags }, *bad = NULL;
	int err = ibv_post_send(qp, &wr, &bad);

	if (err && bad != &wr)
		gave("the bad work request is named", 0, EINVAL);
	return err;
}

/* Work requests that are refused before anything is posted. */
static void posts(void)
{
	struct ibv_sge sge[4] = {};
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = 3 }, *bad;
	struct ibv_qp_attr init = init_attr(ALL_RIGHTS);
	struct ibv_qp *fresh = new_qp(0);
	int number, err = 0;

	gave("a SEND in RESET", EINVAL, post(fresh, IBV_WR_SEND, 1, 8, 0));
	gave("INIT", 0, ibv_modify_qp(fresh, &init, INIT_MASK));
	gave("a SEND in INIT", EINVAL, post(fresh, IBV_WR_SEND, 1, 8, 0));
	must("its end", !ibv_destroy_qp(fresh));
	connect_anew(ALL_RIGHTS);
	gave("a SEND of three elements", EINVAL, post(qps[0], IBV_WR_SEND, 3, 8, 0));
	gave("a SEND of less than none", EINVAL, post(qps[0], IBV_WR_SEND, -1, 8, 0));
	gave("a SEND with too much inline", ENOMEM, post(qps[0], IBV_WR_SEND, 1, 300, IBV_SEND_INLINE));
	gave("an unknown operation", EOPNOTSUPP, post(qps[0], (enum ibv_wr_opcode)77, 1, 8, 0));
	gave("a receive of three elements", EINVAL, ibv_post_recv(qps[0], &wr, &bad));
	wr.num_sge = 0;
	for (number = 0; number <= 1 << 16 && !err; number++)
		err = ibv_post_recv(qps[0], &wr, &bad);
	gave("a receive too many", ENOMEM, err);
	/* The peer has no receive, and retries none: nothing is completed before all are posted. */
	connect_anew(ALL_RIGHTS);
	for (number = 0, err = 0; number <= 1 << 16 && !err; number++)
		err = post(qps[0], IBV_WR_SEND, 1, 8, 0);
	gave("a SEND too many", ENOMEM, err);
}

static void regions(void)
{
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED };
	struct ibv_mw *mw;

	MADE("a region without memory", EFAULT, ibv_reg_mr(pd, (void *)0x10000, 4096, IBV_ACCESS_LOCAL_WRITE));
	MADE("a region that peers write, and its owner not", EINVAL, ibv_reg_mr(pd, buffer, 4096, IBV_ACCESS_REMOTE_WRITE));
	MADE("a region that peers count in, and its owner not", EINVAL,
	     ibv_reg_mr(pd, buffer, 4096, IBV_ACCESS_REMOTE_ATOMIC));
	MADE("a region with unknown rights", EINVAL, ibv_reg_mr(pd, buffer, 4096, 1 << 18));
	MADE("a region beyond all addresses", EINVAL, ibv_reg_mr(pd, buffer, SIZE_MAX - 4096, IBV_ACCESS_LOCAL_WRITE));
	MADE("on demand", EOPNOTSUPP, ibv_reg_mr(pd, buffer, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND));
	gave("other rights that are none", EINVAL,
	     ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE) ? errno : 0);
	gave("a change of nothing", EINVAL, ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) ? errno : 0);
	MADE("a window of an unknown type", EINVAL, ibv_alloc_mw(pd, (enum ibv_mw_type)9));
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	must("a window", mw);
	bind.bind_info = (struct ibv_mw_bind_info){ .mr = mr, .addr = (uintptr_t)buffer, .length = 8,
						    .mw_access_flags = IBV_ACCESS_REMOTE_READ };
	gave("a window over a region that allows none", 0, ibv_bind_mw(qps[0], mw, &bind));
	completed("a window over a region that allows none", 0, IBV_WC_MW_BIND_ERR);
	must("the window's end", !ibv_dealloc_mw(mw));
}

static void queues(void)
{
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 0, .max_sge = 1 } };
	struct ibv_srq_attr attr = { .srq_limit = 1 << 16 };
	struct ibv_srq *srq;

	MADE("a completion queue without entries", EINVAL, ibv_create_cq(context, 0, NULL, NULL, 0));
	MADE("a completion queue that is too long", EINVAL, ibv_create_cq(context, limits.max_cqe + 1, NULL, NULL, 0));
	MADE("a completion queue of no vector", EINVAL,
	     ibv_create_cq(context, 16, NULL, NULL, context->num_comp_vectors));
	gave("resized to nothing", EINVAL, ibv_resize_cq(cqs[0], 0));
	gave("resized too far", EINVAL, ibv_resize_cq(cqs[0], limits.max_cqe + 1));
	MADE("a shared receive queue without entries", EINVAL, ibv_create_srq(pd, &shared));
	shared.attr.max_wr = limits.max_srq_wr + 1;
	MADE("a shared receive queue that is too long", EINVAL, ibv_create_srq(pd, &shared));
	shared.attr.max_wr = 16;
	shared.attr.max_sge = limits.max_srq_sge + 1;
	MADE("a shared receive queue of too many elements", EINVAL, ibv_create_srq(pd, &shared));
	shared.attr.max_sge = 1;
	srq = ibv_create_srq(pd, &shared);
	must("a shared receive queue", srq);
	gave("a limit above all entries", EINVAL, ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	must("its end", !ibv_destroy_srq(srq));
	gave("the end of a completion queue in use", EBUSY, ibv_destroy_cq(cqs[0]));
	gave("the end of a domain in use", EBUSY, ibv_dealloc_pd(pd));
}

static void made(const char *what, int expected, enum ibv_qp_type type, struct ibv_qp_cap cap)
{
	struct ibv_qp_init_attr init = { .send_cq = cqs[0], .recv_cq = cqs[0], .cap = cap, .qp_type = type };

	MADE(what, expected, ibv_create_qp(pd, &init));
}

static void states(void)
{
	struct ibv_qp_attr init = init_attr(ALL_RIGHTS), rtr, rts = { .qp_state = IBV_QPS_RTS };
	struct ibv_qp *qp = new_qp(0);

	gave("RTS out of RESET", EINVAL, ibv_modify_qp(qp, &rts, RTS_MASK));
	gave("INIT without a port", EINVAL, ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX));
	init.port_num = 2;
	gave("INIT on a port that is not there", EINVAL, ibv_modify_qp(qp, &init, INIT_MASK));
	init.port_num = 1;
	init.pkey_index = 9;
	gave("INIT with a key that is not there", EINVAL, ibv_modify_qp(qp, &init, INIT_MASK));
	init.pkey_index = 0;
	gave("INIT", 0, ibv_modify_qp(qp, &init, INIT_MASK));
	rtr = rtr_attr(qp->qp_num);
	rtr.path_mtu = (enum ibv_mtu)9;
	gave("RTR with an MTU that is none", EINVAL, ibv_modify_qp(qp, &rtr, RTR_MASK));
	rtr = rtr_attr(qp->qp_num);
	rtr.ah_attr.grh.sgid_index = 200;
	gave("RTR with an address that is not there", ENODATA, ibv_modify_qp(qp, &rtr, RTR_MASK));
	rtr = rtr_attr(qp->qp_num);
	rtr.ah_attr.is_global = 0;
	gave("RTR without a GID", EINVAL, ibv_modify_qp(qp, &rtr, RTR_MASK));
	rtr = rtr_attr(qp->qp_num);
	rtr.max_dest_rd_atomic = 255;
	gave("RTR with too many READs", EINVAL, ibv_modify_qp(qp, &rtr, RTR_MASK));
	rtr = rtr_attr(qp->qp_num);
	gave("RTR without a peer", EINVAL, ibv_modify_qp(qp, &rtr, RTR_MASK & ~IBV_QP_DEST_QPN));
	gave("RTR", 0, ibv_modify_qp(qp, &rtr, RTR_MASK));
	rts.max_rd_atomic = 255;
	gave("RTS with too many READs", EINVAL, ibv_modify_qp(qp, &rts, RTS_MASK));
	gave("attach of a connection to a group", EINVAL, ibv_attach_mcast(qp, &gid, 0));
	must("its end", !ibv_destroy_qp(qp));
}

static void kinds(void)
{
	const struct ibv_qp_cap least = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 };
	struct ibv_ah_attr address = rtr_attr(0).ah_attr;
	struct ibv_qp_cap cap = least;

	cap.max_send_wr = 1 << 20;
	made("too many sends", EINVAL, IBV_QPT_RC, cap);
	cap = least;
	cap.max_recv_wr = 1 << 20;
	made("too many receives", EINVAL, IBV_QPT_RC, cap);
	cap = least;
	cap.max_send_sge = 200;
	made("too many elements to send", EINVAL, IBV_QPT_RC, cap);
	cap = least;
	cap.max_recv_sge = 200;
	made("too many elements to receive", EINVAL, IBV_QPT_RC, cap);
	cap = least;
	cap.max_inline_data = 1 << 16;
	made("too much inline", EINVAL, IBV_QPT_RC, cap);
	made("a raw queue pair", EOPNOTSUPP, IBV_QPT_RAW_PACKET, least);
	made("a queue pair of no type", EOPNOTSUPP, (enum ibv_qp_type)99, least);
	address.port_num = 2;
	MADE("an address on a port that is not there", EINVAL, ibv_create_ah(pd, &address));
	address.port_num = 1;
	address.grh.sgid_index = 200;
	MADE("an address from one that is not there", ENODATA, ibv_create_ah(pd, &address));
	address.is_global = 0;
	MADE("an address without a GID", EINVAL, ibv_create_ah(pd, &address));
}

static void open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int at, side;

	for (at = 0; list && list[at]; at++)
		if (!strcmp(ibv_get_device_name(list[at]), name))
			context = ibv_open_device(list[at]);
	must(name, context && !ibv_query_device(context, &limits) && !ibv_query_gid(context, 1, gid_index, &gid));
	must("memory", !posix_memalign((void **)&buffer, 4096, BYTES));
	pd = ibv_alloc_pd(context);
	other_pd = ibv_alloc_pd(context);
	must("domains", pd && other_pd);
	mr = ibv_reg_mr(pd, buffer, BYTES, ALL_RIGHTS);
	other_mr = ibv_reg_mr(other_pd, buffer, BYTES, ALL_RIGHTS);
	read_only = ibv_reg_mr(pd, buffer, BYTES, 0);
	must("regions", mr && other_mr && read_only);
	for (side = 0; side < 2; side++) {
		cqs[side] = ibv_create_cq(context, 256, NULL, NULL, 0);
		must("completion queues", cqs[side]);
	}
}

int main(int count, char **words)
{
	const char *device = "rnic0";
	int option;

	while ((option = getopt(count, words, "d:g:")) > 0) {
		if (option == 'd')
			device = optarg;
		else if (option == 'g')
			gid_index = atoi(optarg);
		else
			return 2;
	}
	open_device(device);
	connect_anew(ALL_RIGHTS);
	regions();
	queues();
	kinds();
	states();
	posts();
	transfers();
	printf("%d cases, %d wrong\n", cases, wrong);
	/* What is open is the kernel's to let go. */
	return wrong ? 1 : 0;
}
