// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The device opened for a process: its doorbell page, its limits, and the table of operations. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rnic.h"

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ib_uverbs_ex_query_device_resp answer;
	size_t answer_size = sizeof(answer);
	int err = ibv_cmd_query_device_any(context, input, attr, attr_size, &answer, &answer_size);

	if (err)
		return err;
	snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver), "%u.%u",
		 (unsigned int)(answer.base.fw_ver >> 32), (unsigned int)(answer.base.fw_ver & 0xffff));
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	struct ibv_query_port command = {};

	return ibv_cmd_query_port(context, port, attr, &command, sizeof(command));
}

static void free_context(struct ibv_context *ibcontext)
{
	struct rnic_context *context = to_rnic_context(ibcontext);

	uint32_t row;

	munmap(context->doorbells, RNIC_DOORBELL_PAGE_BYTES);
	for (row = 0; row < QP_ROWS; row++)
		free(context->qp_rows[row]);
	for (row = 0; row < SRQ_ROWS; row++)
		free(context->srq_rows[row]);
	pthread_mutex_destroy(&context->table_lock);
	verbs_uninit_context(&context->base);
	free(context);
}

static const struct verbs_context_ops operations = {
	.alloc_mw = rnic_alloc_mw,
	.alloc_parent_domain = rnic_alloc_parent_domain,
	.alloc_pd = rnic_alloc_pd,
	.alloc_td = rnic_alloc_td,
	.attach_mcast = ibv_cmd_attach_mcast,
	.bind_mw = rnic_bind_mw,
	.close_xrcd = rnic_close_xrcd,
	.cq_event = rnic_cq_event,
	.create_ah = rnic_create_ah,
	.create_cq = rnic_create_cq,
	.create_cq_ex = rnic_create_cq_ex,
	.create_qp = rnic_create_qp,
	.create_qp_ex = rnic_create_qp_ex,
	.create_srq = rnic_create_srq,
	.create_srq_ex = rnic_create_srq_ex,
	.dealloc_mw = rnic_dealloc_mw,
	.dealloc_pd = rnic_dealloc_pd,
	.dealloc_td = rnic_dealloc_td,
	.dereg_mr = rnic_dereg_mr,
	.destroy_ah = rnic_destroy_ah,
	.destroy_cq = rnic_destroy_cq,
	.destroy_qp = rnic_destroy_qp,
	.destroy_srq = rnic_destroy_srq,
	.detach_mcast = ibv_cmd_detach_mcast,
	.free_context = free_context,
	.get_srq_num = rnic_get_srq_num,
	.modify_cq = rnic_modify_cq,
	.modify_qp = rnic_modify_qp,
	.modify_srq = rnic_modify_srq,
	.open_qp = rnic_open_qp,
	.open_xrcd = rnic_open_xrcd,
	.poll_cq = rnic_poll_cq,
	.post_recv = rnic_post_recv,
	.post_send = rnic_post_send,
	.post_srq_recv = rnic_post_srq_recv,
	.query_device_ex = query_device_ex,
	.query_port = query_port,
	.query_qp = rnic_query_qp,
	.query_srq = rnic_query_srq,
	.reg_mr = rnic_reg_mr,
	.req_notify_cq = rnic_req_notify_cq,
	.rereg_mr = rnic_rereg_mr,
	.resize_cq = rnic_resize_cq,
};

static struct verbs_context *alloc_context(struct ibv_device *device, int cmd_fd, void *private_data)
{
	struct ibv_get_context command = {};
	struct {
		struct ib_uverbs_get_context_resp core;
		struct rnic_uresp_alloc_ucontext ours;
	} answer = {};
	struct rnic_context *context;

	context = verbs_init_and_alloc_context(device, cmd_fd, context, base, RDMA_DRIVER_UNKNOWN);
	if (!context)
		return NULL;
	if (ibv_cmd_get_context(&context->base, &command, sizeof(command), RNIC_SINCE_65(NULL) &answer.core,
				sizeof(answer)))
		goto free;
	context->limits = answer.ours;
	context->page_bytes = sysconf(_SC_PAGESIZE);
	context->doorbells = mmap(NULL, RNIC_DOORBELL_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, cmd_fd,
				  (off_t)answer.ours.doorbell_offset);
	if (context->doorbells == MAP_FAILED)
		goto free;
	pthread_mutex_init(&context->table_lock, NULL);
	verbs_set_ops(&context->base, &operations);
	return &context->base;

free:
	verbs_uninit_context(&context->base);
	free(context);
	return NULL;
}

static struct verbs_device *alloc_device(struct verbs_sysfs_dev *sysfs_dev)
{
	return calloc(1, sizeof(struct verbs_device));
}

static void uninit_device(struct verbs_device *device)
{
	free(device);
}

static const struct verbs_match_ent devices[] = {
	VERBS_PCI_MATCH(RNIC_PCI_VENDOR_ID, RNIC_PCI_DEVICE_ID, NULL),
	{},
};

static const struct verbs_device_ops provider = {
	.name = "rnic",
	.match_min_abi_version = RNIC_UVERBS_ABI_VERSION,
	.match_max_abi_version = RNIC_UVERBS_ABI_VERSION,
	.match_table = devices,
	.alloc_device = alloc_device,
	.uninit_device = uninit_device,
	.alloc_context = alloc_context,
};
PROVIDER_DRIVER(rnic, provider);
