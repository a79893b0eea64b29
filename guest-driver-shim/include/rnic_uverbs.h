/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * What the kernel module and the rdma-core provider tell each other beside the common verbs commands: the private
 * parts of their requests and answers. Sizes are multiples of 8; fields are only ever added at the end.
 */
#ifndef RNIC_UVERBS_H
#define RNIC_UVERBS_H

#include <linux/types.h>

#define RNIC_UVERBS_ABI_VERSION 1

/* The process' doorbell page, to be mapped at doorbell_offset of the verbs file, and the limits of its rings. */
struct rnic_uresp_alloc_ucontext {
	__aligned_u64 doorbell_offset;
	__aligned_u64 features;
	__u32 doorbell_page;
	__u32 max_inline_bytes;
	__u8 log_sq_slots;
	__u8 log_rq_entries;
	__u8 log_cq_entries;
	__u8 max_send_sge;
	__u8 max_receive_sge;
	__u8 reserved[3];
};

struct rnic_uresp_alloc_pd {
	__u32 pdn;
	__u32 reserved;
};

/* The ring begins with a page; the consumer record is 8 bytes, aligned. */
struct rnic_ureq_create_cq {
	__aligned_u64 ring_address;
	__aligned_u64 record_address;
	__u8 log_entries;
	__u8 reserved[7];
};

struct rnic_uresp_create_cq {
	__u32 cqn;
	__u32 reserved;
};

/* Both rings begin with a page. With a shared receive queue there is no receive ring: zeros. */
struct rnic_ureq_create_qp {
	__aligned_u64 sq_address;
	__aligned_u64 rq_address;
	__u8 log_sq_slots;
	__u8 log_rq_entries;
	__u8 log_rq_stride;
	__u8 reserved[5];
};

struct rnic_uresp_create_qp {
	__u32 qpn;
	__u32 reserved;
};

/* The new ring begins with a page; entries from first_index on stand in it. */
struct rnic_ureq_resize_cq {
	__aligned_u64 ring_address;
	__u8 log_entries;
	__u8 reserved[7];
};

struct rnic_uresp_resize_cq {
	__u32 first_index;
	__u32 reserved;
};

/* Slots and index ring begin with a page each. */
struct rnic_ureq_create_srq {
	__aligned_u64 wqe_address;
	__aligned_u64 index_address;
	__u8 log_slots;
	__u8 log_stride;
	__u8 reserved[6];
};

struct rnic_uresp_create_srq {
	__u32 srqn;
	__u32 reserved;
};

/* The hardware interface's address vector, MAC address included, and zeros. */
struct rnic_uresp_create_ah {
	__u8 address_vector[36];
	__u32 reserved;
};

#endif /* RNIC_UVERBS_H */
