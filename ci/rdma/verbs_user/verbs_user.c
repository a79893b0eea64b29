// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A program for tests: what stock programs do not use of verbs. The client writes payload, then a word by ATOMIC_WRITE, and
 * makes sure of both by a FLUSH; the server watches the word. It must never see half of one, one go back, or one whose
 * payload is missing. With -w the client does something wrong instead, and expects the error that hardware gives. With -o
 * there is no other side: an XRC target is opened a second time, by its number, and lives until both have let it go.
 *
 *	server: rnic_verbs_user -d rnic0 -g 1
 *	client: rnic_verbs_user -d rnic0 -g 1 [-n rounds] [-w align|right] server
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT 18515
#define PSN 0x123456
#define BUFFER_BYTES 8192
#define PAYLOAD_AT 64
/* Three packets of the smallest path MTU, and a part of one. */
#define PAYLOAD_NUMBERS 230
#define LIMIT_S 30

struct address {
	uint32_t qpn, rkey, rounds, wrong;
	uint64_t buffer;
	union ibv_gid gid;
};

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *buffer;
	int gid_index;
	struct address own, peer;
};

static void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

static void fail(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	fprintf(stderr, "rnic_verbs_user: ");
	vfprintf(stderr, format, values);
	fprintf(stderr, "\n");
	va_end(values);
	exit(1);
}

static time_t deadline(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + LIMIT_S;
}

static bool is_past(time_t end)
{
	return deadline() - LIMIT_S > end;
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;
	int at;

	for (at = 0; list && list[at]; at++) {
		if (strcmp(ibv_get_device_name(list[at]), name))
			continue;
		context = ibv_open_device(list[at]);
		if (!context)
			fail("%s does not open", name);
		ibv_free_device_list(list);
		return context;
	}
	fail("there is no device %s", name);
}

/* The device says what it can. */
static void check_capabilities(struct ibv_context *context)
{
	const uint64_t flush = 1ULL << 38 | 1ULL << 39, atomic_write = 1ULL << 40;
	struct ibv_device_attr_ex attr;

	if (ibv_query_device_ex(context, NULL, &attr))
		fail("the device does not answer");
	if ((attr.device_cap_flags_ex & (flush | atomic_write)) != (flush | atomic_write))
		fail("the device offers %#llx: no FLUSH, or no ATOMIC_WRITE",
		     (unsigned long long)attr.device_cap_flags_ex);
}

static void make(struct end *end, const char *device)
{
	struct ibv_qp_init_attr_ex init = {
		/* Without a byte of inline data: the word of an ATOMIC_WRITE needs none. */
		.cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH,
	};

	end->context = open_device(device);
	check_capabilities(end->context);
	end->pd = ibv_alloc_pd(end->context);
	end->cq = ibv_create_cq(end->context, 32, NULL, NULL, 0);
	if (posix_memalign((void **)&end->buffer, 4096, BUFFER_BYTES) || !end->pd || !end->cq)
		fail("no domain, no completion queue or no memory");
	memset(end->buffer, 0, BUFFER_BYTES);
	/* Nobody may flush it to persistence. */
	end->mr = ibv_reg_mr(end->pd, end->buffer, BUFFER_BYTES,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_GLOBAL);
	if (!end->mr)
		fail("no region: %s", strerror(errno));
	init.pd = end->pd;
	init.send_cq = end->cq;
	init.recv_cq = end->cq;
	end->qp = ibv_create_qp_ex(end->context, &init);
	if (!end->qp)
		fail("no queue pair: %s", strerror(errno));
	end->own.qpn = end->qp->qp_num;
	end->own.rkey = end->mr->rkey;
	end->own.buffer = (uintptr_t)end->buffer;
	if (ibv_query_gid(end->context, 1, end->gid_index, &end->own.gid))
		fail("no GID of index %d", end->gid_index);
}

static void connect_qp(struct end *end)
{
	const int rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights };
	struct ibv_qp_init_attr init;

	if (ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("INIT");
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_256;
	attr.dest_qp_num = end->peer.qpn;
	attr.rq_psn = PSN;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 12;
	attr.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1 };
	attr.ah_attr.grh = (struct ibv_global_route){
		.dgid = end->peer.gid, .sgid_index = end->gid_index, .hop_limit = 64,
	};
	if (ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		fail("RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = PSN;
	attr.timeout = 17;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	if (ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			  IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
		fail("RTS");
	if (ibv_query_qp(end->qp, &attr, IBV_QP_ACCESS_FLAGS, &init) || (attr.qp_access_flags & rights) != rights)
		fail("the queue pair has the rights %#x", attr.qp_access_flags);
}

static void transfer(int stream, const void *out, void *in, size_t bytes)
{
	if (write(stream, out, bytes) != (ssize_t)bytes || recv(stream, in, bytes, MSG_WAITALL) != (ssize_t)bytes)
		fail("the other side is gone");
}

static int stream_to(const char *server)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int stream = socket(AF_INET, SOCK_STREAM, 0), listener = stream, one = 1;

	if (server) {
		if (inet_pton(AF_INET, server, &address.sin_addr) != 1)
			fail("%s is no IPv4 address", server);
		if (connect(stream, (struct sockaddr *)&address, sizeof(address)))
			fail("%s: %s", server, strerror(errno));
		return stream;
	}
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 1))
		fail("port %d: %s", PORT, strerror(errno));
	stream = accept(listener, NULL, NULL);
	close(listener);
	return stream;
}

static void await(struct end *end, enum ibv_wc_status status, enum ibv_wc_opcode opcode, const char *what)
{
	time_t limit = deadline();
	struct ibv_wc wc;
	int found;

	do {
		found = ibv_poll_cq(end->cq, 1, &wc);
		if (found < 0 || is_past(limit))
			fail("%s: no completion", what);
	} while (!found);
	if (wc.status != status)
		fail("%s: %s (%u)", what, ibv_wc_status_str(wc.status), wc.vendor_err);
	if (status == IBV_WC_SUCCESS && wc.opcode != opcode)
		fail("%s: a completion of opcode %d", what, wc.opcode);
}

/* Both halves of a round's word are the round. */
static uint64_t word_of(uint32_t round)
{
	return (uint64_t)round << 32 | round;
}

/* Payload and word without a completion, and a FLUSH that has one. */
static void play_round(struct end *end, uint32_t round)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(end->qp);
	uint64_t word = word_of(round), at = end->peer.buffer;
	uint32_t *payload = (uint32_t *)(end->buffer + PAYLOAD_AT);
	int index;

	for (index = 0; index < PAYLOAD_NUMBERS; index++)
		payload[index] = round;
	ibv_wr_start(qp);
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, end->peer.rkey, at + PAYLOAD_AT);
	ibv_wr_set_sge(qp, end->mr->lkey, (uintptr_t)payload, PAYLOAD_NUMBERS * sizeof(*payload));
	qp->wr_flags = round & 1 ? IBV_SEND_SIGNALED : 0;
	ibv_wr_atomic_write(qp, end->peer.rkey, at, &word);
	/* It was taken with the call. */
	word = UINT64_MAX;
	qp->wr_flags = IBV_SEND_SIGNALED;
	if (round & 2)
		ibv_wr_flush(qp, end->peer.rkey, at, BUFFER_BYTES, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
	else
		ibv_wr_flush(qp, end->peer.rkey, 0, 0, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR);
	if (ibv_wr_complete(qp))
		fail("round %u is refused", round);
	if (round & 1)
		await(end, IBV_WC_SUCCESS, IBV_WC_ATOMIC_WRITE, "an ATOMIC_WRITE");
	await(end, IBV_WC_SUCCESS, IBV_WC_FLUSH, "a FLUSH");
}

static void do_wrong(struct end *end)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(end->qp);
	uint64_t word = UINT64_MAX;

	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	if (end->own.wrong == 'a')
		ibv_wr_atomic_write(qp, end->peer.rkey, end->peer.buffer + 4, &word);
	else
		ibv_wr_flush(qp, end->peer.rkey, end->peer.buffer, 64, IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE);
	if (ibv_wr_complete(qp))
		fail("a wrong request is refused before it is sent");
	if (end->own.wrong == 'a')
		await(end, IBV_WC_REM_INV_REQ_ERR, 0, "an ATOMIC_WRITE that is not aligned");
	else
		await(end, IBV_WC_REM_ACCESS_ERR, 0, "a FLUSH without its right");
}

/* Until the last word is there. */
static uint32_t watch(struct end *end)
{
	volatile uint64_t *word = (volatile uint64_t *)end->buffer;
	volatile uint32_t *payload = (volatile uint32_t *)(end->buffer + PAYLOAD_AT);
	uint32_t last = 0, seen = 0, index;
	time_t limit = deadline();

	while (last < end->peer.rounds) {
		uint64_t now = *word;
		uint32_t round = now;

		if (is_past(limit))
			fail("round %u of %u never came", last + 1, end->peer.rounds);
		if (now != word_of(round))
			fail("half a word: %#llx", (unsigned long long)now);
		if (round < last)
			fail("round %u after %u", round, last);
		seen += round != last;
		last = round;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		for (index = 0; index < PAYLOAD_NUMBERS; index++)
			if (payload[index] < round)
				fail("number %u is of round %u behind the word of round %u", index, payload[index],
				     round);
	}
	return seen;
}

static void check_untouched(const struct end *end)
{
	uint32_t at;

	for (at = 0; at < BUFFER_BYTES; at++)
		if (end->buffer[at])
			fail("what was refused wrote byte %u", at);
}

static void let_go(struct end *end)
{
	if (ibv_destroy_qp(end->qp) || ibv_dereg_mr(end->mr) || ibv_destroy_cq(end->cq) || ibv_dealloc_pd(end->pd) ||
	    ibv_close_device(end->context))
		fail("something is not let go");
	free(end->buffer);
}

/* A domain that whoever has the file shares, as another process would. */
static struct ibv_xrcd *open_domain(struct ibv_context *context, int file)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = file, .oflags = O_CREAT,
	};
	struct ibv_xrcd *domain = ibv_open_xrcd(context, &attr);

	if (!domain)
		fail("no XRC domain: %s", strerror(errno));
	return domain;
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(qp, &attr, IBV_QP_STATE, &init))
		fail("a target does not answer");
	return attr.qp_state;
}

static int open_target(const char *device)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	const int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	struct ibv_context *contexts[2] = { open_device(device), open_device(device) };
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD };
	struct ibv_qp_open_attr again = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	int file = open("/tmp/rnic_verbs_user.domain", O_RDONLY | O_CREAT, 0600), index;
	struct ibv_xrcd *domains[2];
	struct ibv_qp *made, *opened;

	if (file < 0)
		fail("no file for the domain: %s", strerror(errno));
	for (index = 0; index < 2; index++)
		domains[index] = open_domain(contexts[index], file);
	init.xrcd = domains[0];
	made = ibv_create_qp_ex(contexts[0], &init);
	if (!made)
		fail("no target: %s", strerror(errno));
	again.xrcd = domains[1];
	again.qp_num = made->qp_num + 1;
	if (ibv_open_qp(contexts[1], &again) || errno != EINVAL)
		fail("a target that nobody made is opened, or refused with %s", strerror(errno));
	again.qp_num = made->qp_num;
	opened = ibv_open_qp(contexts[1], &again);
	if (!opened || opened->qp_num != made->qp_num)
		fail("the target is not opened: %s", strerror(errno));
	if (ibv_modify_qp(made, &attr, to_init) || state_of(opened) != IBV_QPS_INIT)
		fail("both are not the same target");
	if (ibv_destroy_qp(made) || state_of(opened) != IBV_QPS_INIT)
		fail("the target went with the first who let it go");
	if (ibv_destroy_qp(opened))
		fail("the target is not let go");
	for (index = 0; index < 2; index++)
		if (ibv_close_xrcd(domains[index]) || ibv_close_device(contexts[index]))
			fail("something is not let go");
	close(file);
	printf("a target was opened twice\n");
	return 0;
}

int main(int count, char **words)
{
	const char *device = "rnic0", *server;
	struct end end = { .own.rounds = 100 };
	uint32_t round, seen = 0;
	char done = 0;
	int option, stream;

	while ((option = getopt(count, words, "d:g:n:ow:")) != -1) {
		if (option == 'd')
			device = optarg;
		else if (option == 'g')
			end.gid_index = atoi(optarg);
		else if (option == 'o')
			return open_target(device);
		else if (option == 'n')
			end.own.rounds = atoi(optarg);
		else if (option == 'w' && (!strcmp(optarg, "align") || !strcmp(optarg, "right")))
			end.own.wrong = optarg[0];
		else
			fail("-d DEVICE, -g GID INDEX, -n ROUNDS, -w align or right, -o, and for the client the server's address");
	}
	server = optind < count ? words[optind] : NULL;
	make(&end, device);
	stream = stream_to(server);
	transfer(stream, &end.own, &end.peer, sizeof(end.own));
	connect_qp(&end);
	/* Both are ready. */
	transfer(stream, &done, &done, 1);
	if (server && end.own.wrong)
		do_wrong(&end);
	else if (server)
		for (round = 1; round <= end.own.rounds; round++)
			play_round(&end, round);
	else if (!end.peer.wrong)
		seen = watch(&end);
	transfer(stream, &done, &done, 1);
	if (!server && end.peer.wrong)
		check_untouched(&end);
	let_go(&end);
	if (server)
		printf("%s\n", end.own.wrong ? "refused as it should be" : "all rounds were flushed");
	else
		printf("%u words seen\n", seen);
	return 0;
}
