/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR (GPL-2.0 WITH Linux-syscall-note) */
/*
 * The hardware interface of rnic: registers, doorbells, rings, commands.
 * Generated from the Rust crate rnic-abi by its driver shim; do not edit.
 * All structures are little-endian and have no padding.
 */
#ifndef RNIC_ABI_H
#define RNIC_ABI_H

#include <linux/types.h>
#ifdef __KERNEL__
#include <linux/build_bug.h>
#include <linux/stddef.h>
#define RNIC_ASSERT(condition, text) static_assert(condition, text)
#else
#include <stddef.h>
#ifdef __cplusplus
#define RNIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define RNIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif
#endif

#define RNIC_ABI_VERSION_MAJOR 1
#define RNIC_ABI_VERSION_MINOR 3
#define RNIC_PCI_VENDOR_ID 0x1234
#define RNIC_PCI_DEVICE_ID 0x12b7

#define RNIC_BAR_REGISTERS 0x0U
#define RNIC_BAR_DOORBELLS 0x2U
#define RNIC_BAR_MSIX 0x4U
#define RNIC_REGISTERS_BYTES 0x10000U
#define RNIC_REG_MAGIC 0x0U
#define RNIC_REG_VERSION 0x4U
#define RNIC_REG_FEATURES 0x8U
#define RNIC_REG_STATUS 0x10U
#define RNIC_REG_CONTROL 0x14U
#define RNIC_REG_MAC 0x18U
#define RNIC_REG_DOORBELL_PAGES 0x20U
#define RNIC_REG_VECTORS 0x24U
#define RNIC_REG_PORT_MTU 0x28U
#define RNIC_REG_COMMAND_RING 0x40U
#define RNIC_REG_COMMAND_COMPLETION_RING 0x48U
#define RNIC_REG_COMMAND_RING_LOG_SLOTS 0x50U
#define RNIC_REG_COMMAND_DOORBELL 0x54U
#define RNIC_REG_LAST_DIAGNOSTIC 0x60U
#define RNIC_REG_LAST_DIAGNOSTIC_OBJECT 0x64U
#define RNIC_REG_MARK 0x68U
#define RNIC_REG_TIME 0x70U
#define RNIC_MAGIC 0x43494e52U
#define RNIC_STATUS_ENABLED 0x1U
#define RNIC_STATUS_FATAL 0x2U
#define RNIC_STATUS_LINK_UP 0x4U
#define RNIC_CONTROL_ENABLE 0x1U
#define RNIC_FEATURE_ROCE_V2 0x1U
#define RNIC_FEATURE_DOORBELL_LINE 0x2U
#define RNIC_FEATURE_DOORBELL_WQE 0x4U
#define RNIC_FEATURE_READ 0x8U
#define RNIC_FEATURE_ATOMIC 0x10U
#define RNIC_FEATURE_INVALIDATE 0x20U
#define RNIC_FEATURE_UC 0x40U
#define RNIC_FEATURE_UD 0x80U
#define RNIC_FEATURE_MULTICAST 0x100U
#define RNIC_FEATURE_ATOMIC_WRITE 0x200U
#define RNIC_FEATURE_FLUSH 0x400U
#define RNIC_FEATURE_XRC 0x800U
#define RNIC_FEATURE_SELECTIVE 0x1000U
#define RNIC_FEATURE_SRQ 0x10000U
#define RNIC_FEATURE_CQ_RESIZE 0x20000U
#define RNIC_FEATURE_CQ_MODERATION 0x40000U
#define RNIC_FEATURE_FAST_REGISTER 0x80000U
#define RNIC_FEATURE_ZERO_BASED 0x100000U
#define RNIC_FEATURE_REREGISTER 0x200000U
#define RNIC_FEATURE_LOCAL_DMA_KEY 0x400000U
#define RNIC_FEATURE_WINDOW 0x800000U
#define RNIC_FEATURE_COUNTERS 0x1000000U
#define RNIC_DOORBELL_PAGE_BYTES 0x1000U
#define RNIC_DB_SEND 0x0U
#define RNIC_DB_RECEIVE 0x8U
#define RNIC_DB_CQ_ARM 0x10U
#define RNIC_DB_EQ_UPDATE 0x18U
#define RNIC_DB_SRQ 0x20U
#define RNIC_DB_SEND_LINE_0 0x400U
#define RNIC_DB_SEND_LINE_1 0x440U
#define RNIC_DB_SEND_WQE_0 0x800U
#define RNIC_DB_SEND_WQE_1 0x840U
#define RNIC_DOORBELL_LINE_BYTES 0x40U
#define RNIC_CQ_ARM_SOLICITED 0x4U
#define RNIC_EQ_UPDATE_ARM 0x1U
#define RNIC_WQE_SLOT_BYTES 0x40U
#define RNIC_WQE_SEGMENT_BYTES 0x10U
#define RNIC_MAX_WQE_SLOTS 0x4U
#define RNIC_WQE_SIGNALED 0x1U
#define RNIC_WQE_SOLICITED 0x2U
#define RNIC_WQE_FENCE 0x4U
#define RNIC_WQE_INLINE 0x8U
#define RNIC_FLUSH_GLOBAL 0x1U
#define RNIC_FLUSH_PERSISTENT 0x2U
#define RNIC_FLUSH_REGION 0x10U
#define RNIC_ATOMIC_BYTES 0x8U
#define RNIC_GRH_BYTES 0x28U
#define RNIC_CQE_BYTES 0x40U
#define RNIC_CQE_PHASE 0x1U
#define RNIC_CQE_WITH_IMM 0x1U
#define RNIC_CQE_WITH_INV 0x2U
#define RNIC_CQE_SOLICITED 0x4U
#define RNIC_CQE_GRH 0x8U
#define RNIC_CQE_WITH_SMAC 0x10U
#define RNIC_CQE_WITH_VLAN 0x20U
#define RNIC_NETWORK_IPV4 0x4U
#define RNIC_NETWORK_IPV6 0x6U
#define RNIC_CQE_SRQ 0x100U
#define RNIC_EQE_BYTES 0x10U
#define RNIC_EQE_PHASE 0x1U
#define RNIC_COMMAND_BYTES 0x80U
#define RNIC_COMMAND_PHASE 0x1U
#define RNIC_COMMAND_NOTIFY 0x1U
#define RNIC_TABLE_QP 0x1U
#define RNIC_TABLE_CQ 0x2U
#define RNIC_TABLE_SRQ 0x3U
#define RNIC_TABLE_KEY 0x4U
#define RNIC_TABLE_RD_ATOMIC 0x6U
#define RNIC_FLUSH_QP 0x1U
#define RNIC_FLUSH_CQ 0x2U
#define RNIC_FLUSH_SRQ 0x4U
#define RNIC_FLUSH_KEY 0x8U
#define RNIC_FLUSH_TRANSLATION 0x10U
#define RNIC_FLUSH_RD_ATOMIC 0x20U
#define RNIC_COUNTERS_PORT 0x0U
#define RNIC_COUNTERS_CROSSINGS 0x1U
#define RNIC_NO_VLAN 0xffffU
#define RNIC_NO_VECTOR 0xffffU
#define RNIC_QP_TYPE_RC 0x0U
#define RNIC_QP_TYPE_UC 0x1U
#define RNIC_QP_TYPE_UD 0x2U
#define RNIC_QP_TYPE_GSI 0x3U
#define RNIC_QP_TYPE_XRC_INI 0x4U
#define RNIC_QP_TYPE_XRC_TGT 0x5U
#define RNIC_GSI_QPN 0x1U
#define RNIC_GSI_QKEY 0x80010000U
#define RNIC_QKEY_PRIVILEGED 0x80000000U
#define RNIC_MULTICAST_QPN 0xffffffU
#define RNIC_QP_SIGNAL_ALL 0x1U
#define RNIC_QP_SRQ 0x2U
#define RNIC_QP_SELECTIVE 0x8U
#define RNIC_QP_PRIVILEGED 0x4U
#define RNIC_SRQ_PRIVILEGED 0x1U
#define RNIC_SRQ_XRC 0x2U
#define RNIC_QP_STATE_RESET 0x0U
#define RNIC_QP_STATE_INIT 0x1U
#define RNIC_QP_STATE_RTR 0x2U
#define RNIC_QP_STATE_RTS 0x3U
#define RNIC_QP_STATE_SQD 0x4U
#define RNIC_QP_STATE_SQE 0x5U
#define RNIC_QP_STATE_ERR 0x6U
#define RNIC_ATTR_STATE 0x1U
#define RNIC_ATTR_CUR_STATE 0x2U
#define RNIC_ATTR_EN_SQD_ASYNC_NOTIFY 0x4U
#define RNIC_ATTR_ACCESS_FLAGS 0x8U
#define RNIC_ATTR_PKEY_INDEX 0x10U
#define RNIC_ATTR_PORT 0x20U
#define RNIC_ATTR_QKEY 0x40U
#define RNIC_ATTR_AV 0x80U
#define RNIC_ATTR_PATH_MTU 0x100U
#define RNIC_ATTR_TIMEOUT 0x200U
#define RNIC_ATTR_RETRY_CNT 0x400U
#define RNIC_ATTR_RNR_RETRY 0x800U
#define RNIC_ATTR_RQ_PSN 0x1000U
#define RNIC_ATTR_MAX_QP_RD_ATOMIC 0x2000U
#define RNIC_ATTR_ALT_PATH 0x4000U
#define RNIC_ATTR_MIN_RNR_TIMER 0x8000U
#define RNIC_ATTR_SQ_PSN 0x10000U
#define RNIC_ATTR_MAX_DEST_RD_ATOMIC 0x20000U
#define RNIC_ATTR_PATH_MIG_STATE 0x40000U
#define RNIC_ATTR_DEST_QPN 0x100000U
#define RNIC_ACCESS_LOCAL_WRITE 0x1U
#define RNIC_ACCESS_REMOTE_WRITE 0x2U
#define RNIC_ACCESS_REMOTE_READ 0x4U
#define RNIC_ACCESS_REMOTE_ATOMIC 0x8U
#define RNIC_ACCESS_INVALIDATE 0x10U
#define RNIC_ACCESS_MW_BIND 0x20U
#define RNIC_ACCESS_ZERO_BASED 0x40U
#define RNIC_ACCESS_FLUSH_GLOBAL 0x80U
#define RNIC_ACCESS_FLUSH_PERSISTENT 0x100U
#define RNIC_KEY_FAST_REGION 0x1U
#define RNIC_KEY_WINDOW_1 0x2U
#define RNIC_KEY_WINDOW_2A 0x3U
#define RNIC_KEY_WINDOW_2B 0x4U
#define RNIC_REREGISTER_TRANSLATION 0x1U
#define RNIC_REREGISTER_PD 0x2U
#define RNIC_REREGISTER_ACCESS 0x4U
#define RNIC_LOCAL_DMA_KEY 0xffffff00U
#define RNIC_MAX_LOG_QPS 0x11U
#define RNIC_MAX_LOG_CQS 0x11U
#define RNIC_MAX_LOG_KEYS 0x14U
#define RNIC_MAX_EQS 0x40U
#define RNIC_MAX_LOG_SRQS 0x10U
#define RNIC_MAX_LOG_SRQ_SLOTS 0xfU
#define RNIC_MAX_FAST_REGISTER_PAGES 0x10000U
#define RNIC_MAX_LOG_SQ_SLOTS 0xfU
#define RNIC_MAX_LOG_RQ_ENTRIES 0xfU
#define RNIC_MAX_LOG_RQ_STRIDE 0x3U
#define RNIC_MAX_LOG_CQ_ENTRIES 0x16U
#define RNIC_MAX_LOG_EQ_ENTRIES 0x10U
#define RNIC_MAX_LOG_COMMAND_SLOTS 0x8U
#define RNIC_MAX_SEND_SGE 0xeU
#define RNIC_MAX_RECEIVE_SGE 0x8U
#define RNIC_MAX_INLINE_BYTES 0xe0U
#define RNIC_MAX_MESSAGE_BYTES 0x80000000U
#define RNIC_MAX_GIDS 0x100U
#define RNIC_MAX_DATAGRAM_SGE 0xcU
#define RNIC_MAX_DATAGRAM_INLINE_BYTES 0xc0U
#define RNIC_MAX_XRC_SGE 0xdU
#define RNIC_MAX_XRC_INLINE_BYTES 0xd0U
#define RNIC_MAX_MULTICAST_GROUPS 0x100U
#define RNIC_MAX_GROUP_QPS 0x40U
#define RNIC_NO_OBJECT 0xffffffffU
#define RNIC_QP_CONTEXT_BYTES 0x100U
#define RNIC_CQ_CONTEXT_BYTES 0x40U
#define RNIC_SRQ_CONTEXT_BYTES 0x40U
#define RNIC_KEY_CONTEXT_BYTES 0x40U
#define RNIC_RD_ATOMIC_CONTEXT_BYTES 0x200U
#define RNIC_MAX_RD_ATOMIC 0x10U

#define RNIC_WORK_SEND 0x1U
#define RNIC_WORK_SEND_IMM 0x2U
#define RNIC_WORK_SEND_INV 0x3U
#define RNIC_WORK_WRITE 0x4U
#define RNIC_WORK_WRITE_IMM 0x5U
#define RNIC_WORK_READ 0x8U
#define RNIC_WORK_FLUSH 0x9U
#define RNIC_WORK_CMP_SWAP 0xaU
#define RNIC_WORK_FETCH_ADD 0xbU
#define RNIC_WORK_ATOMIC_WRITE 0xcU
#define RNIC_WORK_LOCAL_INV 0x10U
#define RNIC_WORK_REG_MR 0x11U
#define RNIC_WORK_BIND_MW 0x12U

#define RNIC_COMPLETION_SEND 0x1U
#define RNIC_COMPLETION_SEND_IMM 0x2U
#define RNIC_COMPLETION_SEND_INV 0x3U
#define RNIC_COMPLETION_WRITE 0x4U
#define RNIC_COMPLETION_WRITE_IMM 0x5U
#define RNIC_COMPLETION_READ 0x8U
#define RNIC_COMPLETION_FLUSH 0x9U
#define RNIC_COMPLETION_CMP_SWAP 0xaU
#define RNIC_COMPLETION_FETCH_ADD 0xbU
#define RNIC_COMPLETION_ATOMIC_WRITE 0xcU
#define RNIC_COMPLETION_LOCAL_INV 0x10U
#define RNIC_COMPLETION_REG_MR 0x11U
#define RNIC_COMPLETION_BIND_MW 0x12U
#define RNIC_COMPLETION_RECV 0x80U
#define RNIC_COMPLETION_RECV_RDMA_WITH_IMM 0x81U

#define RNIC_STATUS_OF_COMPLETION_SUCCESS 0x0U
#define RNIC_STATUS_OF_COMPLETION_LOC_LEN_ERR 0x1U
#define RNIC_STATUS_OF_COMPLETION_LOC_QP_OP_ERR 0x2U
#define RNIC_STATUS_OF_COMPLETION_LOC_PROT_ERR 0x4U
#define RNIC_STATUS_OF_COMPLETION_WR_FLUSH_ERR 0x5U
#define RNIC_STATUS_OF_COMPLETION_MW_BIND_ERR 0x6U
#define RNIC_STATUS_OF_COMPLETION_BAD_RESP_ERR 0x7U
#define RNIC_STATUS_OF_COMPLETION_LOC_ACCESS_ERR 0x8U
#define RNIC_STATUS_OF_COMPLETION_REM_INV_REQ_ERR 0x9U
#define RNIC_STATUS_OF_COMPLETION_REM_ACCESS_ERR 0xaU
#define RNIC_STATUS_OF_COMPLETION_REM_OP_ERR 0xbU
#define RNIC_STATUS_OF_COMPLETION_RETRY_EXC_ERR 0xcU
#define RNIC_STATUS_OF_COMPLETION_RNR_RETRY_EXC_ERR 0xdU
#define RNIC_STATUS_OF_COMPLETION_REM_ABORT_ERR 0x10U
#define RNIC_STATUS_OF_COMPLETION_FATAL_ERR 0x12U
#define RNIC_STATUS_OF_COMPLETION_GENERAL_ERR 0x15U

#define RNIC_EVENT_COMPLETION 0x0U
#define RNIC_EVENT_COMMAND 0x1U
#define RNIC_EVENT_CQ_ERR 0x10U
#define RNIC_EVENT_QP_FATAL 0x11U
#define RNIC_EVENT_QP_REQ_ERR 0x12U
#define RNIC_EVENT_QP_ACCESS_ERR 0x13U
#define RNIC_EVENT_COMM_EST 0x14U
#define RNIC_EVENT_SQ_DRAINED 0x15U
#define RNIC_EVENT_DEVICE_FATAL 0x18U
#define RNIC_EVENT_PORT_ACTIVE 0x19U
#define RNIC_EVENT_PORT_ERR 0x1aU
#define RNIC_EVENT_SRQ_ERR 0x1eU
#define RNIC_EVENT_SRQ_LIMIT_REACHED 0x1fU
#define RNIC_EVENT_QP_LAST_WQE_REACHED 0x20U

#define RNIC_COMMAND_OPCODE_QUERY_DEVICE 0x1U
#define RNIC_COMMAND_OPCODE_SET_TABLE 0x2U
#define RNIC_COMMAND_OPCODE_FLUSH_CACHES 0x3U
#define RNIC_COMMAND_OPCODE_SET_GID 0x4U
#define RNIC_COMMAND_OPCODE_QUERY_COUNTERS 0x5U
#define RNIC_COMMAND_OPCODE_CREATE_EQ 0x8U
#define RNIC_COMMAND_OPCODE_DESTROY_EQ 0x9U
#define RNIC_COMMAND_OPCODE_CREATE_CQ 0x10U
#define RNIC_COMMAND_OPCODE_DESTROY_CQ 0x11U
#define RNIC_COMMAND_OPCODE_MODIFY_CQ 0x12U
#define RNIC_COMMAND_OPCODE_RESIZE_CQ 0x13U
#define RNIC_COMMAND_OPCODE_CREATE_QP 0x18U
#define RNIC_COMMAND_OPCODE_MODIFY_QP 0x19U
#define RNIC_COMMAND_OPCODE_QUERY_QP 0x1aU
#define RNIC_COMMAND_OPCODE_DESTROY_QP 0x1bU
#define RNIC_COMMAND_OPCODE_ATTACH_MULTICAST 0x1cU
#define RNIC_COMMAND_OPCODE_DETACH_MULTICAST 0x1dU
#define RNIC_COMMAND_OPCODE_REGISTER_KEY 0x20U
#define RNIC_COMMAND_OPCODE_DEREGISTER_KEY 0x21U
#define RNIC_COMMAND_OPCODE_REREGISTER_KEY 0x22U
#define RNIC_COMMAND_OPCODE_ALLOCATE_KEY 0x23U
#define RNIC_COMMAND_OPCODE_CREATE_SRQ 0x28U
#define RNIC_COMMAND_OPCODE_MODIFY_SRQ 0x29U
#define RNIC_COMMAND_OPCODE_QUERY_SRQ 0x2aU
#define RNIC_COMMAND_OPCODE_DESTROY_SRQ 0x2bU

#define RNIC_COMMAND_STATUS_OK 0x0U
#define RNIC_COMMAND_STATUS_BAD_OPCODE 0x1U
#define RNIC_COMMAND_STATUS_BAD_PARAMETER 0x2U
#define RNIC_COMMAND_STATUS_NO_SUCH_OBJECT 0x3U
#define RNIC_COMMAND_STATUS_EXISTS 0x4U
#define RNIC_COMMAND_STATUS_BAD_STATE 0x5U
#define RNIC_COMMAND_STATUS_NO_RESOURCES 0x6U
#define RNIC_COMMAND_STATUS_DMA_FAULT 0x7U

struct rnic_page_list_fields {
	__le64 root;
	__u8 page_shift;
	__u8 levels;
	__le16 reserved0;
	__le32 reserved1;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_page_list_fields) == 16, "rnic_page_list_fields");
RNIC_ASSERT(offsetof(struct rnic_page_list_fields, root) == 0, "rnic_page_list_fields.root");
RNIC_ASSERT(offsetof(struct rnic_page_list_fields, page_shift) == 8, "rnic_page_list_fields.page_shift");
RNIC_ASSERT(offsetof(struct rnic_page_list_fields, levels) == 9, "rnic_page_list_fields.levels");
RNIC_ASSERT(offsetof(struct rnic_page_list_fields, reserved0) == 10, "rnic_page_list_fields.reserved0");
RNIC_ASSERT(offsetof(struct rnic_page_list_fields, reserved1) == 12, "rnic_page_list_fields.reserved1");

struct rnic_control_segment {
	__u8 opcode;
	__u8 qpn[3];
	__le16 slot_index;
	__u8 segments;
	__u8 flags;
	__le32 immediate;
	__le16 inline_bytes;
	__le16 reserved;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_control_segment) == 16, "rnic_control_segment");
RNIC_ASSERT(offsetof(struct rnic_control_segment, opcode) == 0, "rnic_control_segment.opcode");
RNIC_ASSERT(offsetof(struct rnic_control_segment, qpn) == 1, "rnic_control_segment.qpn");
RNIC_ASSERT(offsetof(struct rnic_control_segment, slot_index) == 4, "rnic_control_segment.slot_index");
RNIC_ASSERT(offsetof(struct rnic_control_segment, segments) == 6, "rnic_control_segment.segments");
RNIC_ASSERT(offsetof(struct rnic_control_segment, flags) == 7, "rnic_control_segment.flags");
RNIC_ASSERT(offsetof(struct rnic_control_segment, immediate) == 8, "rnic_control_segment.immediate");
RNIC_ASSERT(offsetof(struct rnic_control_segment, inline_bytes) == 12, "rnic_control_segment.inline_bytes");
RNIC_ASSERT(offsetof(struct rnic_control_segment, reserved) == 14, "rnic_control_segment.reserved");

struct rnic_remote_segment {
	__le64 address;
	__le32 rkey;
	__le32 reserved;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_remote_segment) == 16, "rnic_remote_segment");
RNIC_ASSERT(offsetof(struct rnic_remote_segment, address) == 0, "rnic_remote_segment.address");
RNIC_ASSERT(offsetof(struct rnic_remote_segment, rkey) == 8, "rnic_remote_segment.rkey");
RNIC_ASSERT(offsetof(struct rnic_remote_segment, reserved) == 12, "rnic_remote_segment.reserved");

struct rnic_atomic_segment {
	__le64 swap_or_add;
	__le64 compare;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_atomic_segment) == 16, "rnic_atomic_segment");
RNIC_ASSERT(offsetof(struct rnic_atomic_segment, swap_or_add) == 0, "rnic_atomic_segment.swap_or_add");
RNIC_ASSERT(offsetof(struct rnic_atomic_segment, compare) == 8, "rnic_atomic_segment.compare");

struct rnic_xrc_segment {
	__le32 srqn;
	__le32 reserved0;
	__le64 reserved1;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_xrc_segment) == 16, "rnic_xrc_segment");
RNIC_ASSERT(offsetof(struct rnic_xrc_segment, srqn) == 0, "rnic_xrc_segment.srqn");
RNIC_ASSERT(offsetof(struct rnic_xrc_segment, reserved0) == 4, "rnic_xrc_segment.reserved0");
RNIC_ASSERT(offsetof(struct rnic_xrc_segment, reserved1) == 8, "rnic_xrc_segment.reserved1");

struct rnic_data_segment {
	__le64 address;
	__le32 length_bytes;
	__le32 lkey;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_data_segment) == 16, "rnic_data_segment");
RNIC_ASSERT(offsetof(struct rnic_data_segment, address) == 0, "rnic_data_segment.address");
RNIC_ASSERT(offsetof(struct rnic_data_segment, length_bytes) == 8, "rnic_data_segment.length_bytes");
RNIC_ASSERT(offsetof(struct rnic_data_segment, lkey) == 12, "rnic_data_segment.lkey");

struct rnic_register_segment {
	__le32 access;
	__le32 reserved0;
	__le64 reserved1;
	__le64 start;
	__le64 length_bytes;
	struct rnic_page_list_fields pages;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_register_segment) == 48, "rnic_register_segment");
RNIC_ASSERT(offsetof(struct rnic_register_segment, access) == 0, "rnic_register_segment.access");
RNIC_ASSERT(offsetof(struct rnic_register_segment, reserved0) == 4, "rnic_register_segment.reserved0");
RNIC_ASSERT(offsetof(struct rnic_register_segment, reserved1) == 8, "rnic_register_segment.reserved1");
RNIC_ASSERT(offsetof(struct rnic_register_segment, start) == 16, "rnic_register_segment.start");
RNIC_ASSERT(offsetof(struct rnic_register_segment, length_bytes) == 24, "rnic_register_segment.length_bytes");
RNIC_ASSERT(offsetof(struct rnic_register_segment, pages) == 32, "rnic_register_segment.pages");

struct rnic_bind_segment {
	__le32 access;
	__le32 lkey;
	__le64 address;
	__le64 length_bytes;
	__le64 reserved;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_bind_segment) == 32, "rnic_bind_segment");
RNIC_ASSERT(offsetof(struct rnic_bind_segment, access) == 0, "rnic_bind_segment.access");
RNIC_ASSERT(offsetof(struct rnic_bind_segment, lkey) == 4, "rnic_bind_segment.lkey");
RNIC_ASSERT(offsetof(struct rnic_bind_segment, address) == 8, "rnic_bind_segment.address");
RNIC_ASSERT(offsetof(struct rnic_bind_segment, length_bytes) == 16, "rnic_bind_segment.length_bytes");
RNIC_ASSERT(offsetof(struct rnic_bind_segment, reserved) == 24, "rnic_bind_segment.reserved");

struct rnic_cqe {
	__le32 qpn;
	__le16 wqe_index;
	__u8 opcode;
	__u8 status;
	__le32 byte_len;
	__le32 immediate;
	__le32 src_qpn;
	__le32 vendor_err;
	__le16 flags;
	__le16 pkey_index;
	__le16 vlan_id;
	__u8 service_level;
	__u8 network_type;
	__le64 time_ns;
	__u8 source_mac[6];
	__u8 reserved0[2];
	__le32 srqn;
	__u8 reserved1[8];
	__le32 phase;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_cqe) == 64, "rnic_cqe");
RNIC_ASSERT(offsetof(struct rnic_cqe, qpn) == 0, "rnic_cqe.qpn");
RNIC_ASSERT(offsetof(struct rnic_cqe, wqe_index) == 4, "rnic_cqe.wqe_index");
RNIC_ASSERT(offsetof(struct rnic_cqe, opcode) == 6, "rnic_cqe.opcode");
RNIC_ASSERT(offsetof(struct rnic_cqe, status) == 7, "rnic_cqe.status");
RNIC_ASSERT(offsetof(struct rnic_cqe, byte_len) == 8, "rnic_cqe.byte_len");
RNIC_ASSERT(offsetof(struct rnic_cqe, immediate) == 12, "rnic_cqe.immediate");
RNIC_ASSERT(offsetof(struct rnic_cqe, src_qpn) == 16, "rnic_cqe.src_qpn");
RNIC_ASSERT(offsetof(struct rnic_cqe, vendor_err) == 20, "rnic_cqe.vendor_err");
RNIC_ASSERT(offsetof(struct rnic_cqe, flags) == 24, "rnic_cqe.flags");
RNIC_ASSERT(offsetof(struct rnic_cqe, pkey_index) == 26, "rnic_cqe.pkey_index");
RNIC_ASSERT(offsetof(struct rnic_cqe, vlan_id) == 28, "rnic_cqe.vlan_id");
RNIC_ASSERT(offsetof(struct rnic_cqe, service_level) == 30, "rnic_cqe.service_level");
RNIC_ASSERT(offsetof(struct rnic_cqe, network_type) == 31, "rnic_cqe.network_type");
RNIC_ASSERT(offsetof(struct rnic_cqe, time_ns) == 32, "rnic_cqe.time_ns");
RNIC_ASSERT(offsetof(struct rnic_cqe, source_mac) == 40, "rnic_cqe.source_mac");
RNIC_ASSERT(offsetof(struct rnic_cqe, reserved0) == 46, "rnic_cqe.reserved0");
RNIC_ASSERT(offsetof(struct rnic_cqe, srqn) == 48, "rnic_cqe.srqn");
RNIC_ASSERT(offsetof(struct rnic_cqe, reserved1) == 52, "rnic_cqe.reserved1");
RNIC_ASSERT(offsetof(struct rnic_cqe, phase) == 60, "rnic_cqe.phase");

struct rnic_consumer_record {
	__le32 consumer_index;
	__le32 reserved;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_consumer_record) == 8, "rnic_consumer_record");
RNIC_ASSERT(offsetof(struct rnic_consumer_record, consumer_index) == 0, "rnic_consumer_record.consumer_index");
RNIC_ASSERT(offsetof(struct rnic_consumer_record, reserved) == 4, "rnic_consumer_record.reserved");

struct rnic_eqe {
	__u8 event_type;
	__u8 reserved0;
	__le16 reserved1;
	__le32 object;
	__le32 data;
	__le32 phase;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_eqe) == 16, "rnic_eqe");
RNIC_ASSERT(offsetof(struct rnic_eqe, event_type) == 0, "rnic_eqe.event_type");
RNIC_ASSERT(offsetof(struct rnic_eqe, reserved0) == 1, "rnic_eqe.reserved0");
RNIC_ASSERT(offsetof(struct rnic_eqe, reserved1) == 2, "rnic_eqe.reserved1");
RNIC_ASSERT(offsetof(struct rnic_eqe, object) == 4, "rnic_eqe.object");
RNIC_ASSERT(offsetof(struct rnic_eqe, data) == 8, "rnic_eqe.data");
RNIC_ASSERT(offsetof(struct rnic_eqe, phase) == 12, "rnic_eqe.phase");

struct rnic_command_header {
	__u8 opcode;
	__u8 flags;
	__le16 reserved0;
	__le32 token;
	__le64 reserved1;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_command_header) == 16, "rnic_command_header");
RNIC_ASSERT(offsetof(struct rnic_command_header, opcode) == 0, "rnic_command_header.opcode");
RNIC_ASSERT(offsetof(struct rnic_command_header, flags) == 1, "rnic_command_header.flags");
RNIC_ASSERT(offsetof(struct rnic_command_header, reserved0) == 2, "rnic_command_header.reserved0");
RNIC_ASSERT(offsetof(struct rnic_command_header, token) == 4, "rnic_command_header.token");
RNIC_ASSERT(offsetof(struct rnic_command_header, reserved1) == 8, "rnic_command_header.reserved1");

struct rnic_completion_header {
	__le32 token;
	__u8 opcode;
	__u8 status;
	__le16 slot;
	__le32 diagnostic;
	__le32 reserved;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_completion_header) == 16, "rnic_completion_header");
RNIC_ASSERT(offsetof(struct rnic_completion_header, token) == 0, "rnic_completion_header.token");
RNIC_ASSERT(offsetof(struct rnic_completion_header, opcode) == 4, "rnic_completion_header.opcode");
RNIC_ASSERT(offsetof(struct rnic_completion_header, status) == 5, "rnic_completion_header.status");
RNIC_ASSERT(offsetof(struct rnic_completion_header, slot) == 6, "rnic_completion_header.slot");
RNIC_ASSERT(offsetof(struct rnic_completion_header, diagnostic) == 8, "rnic_completion_header.diagnostic");
RNIC_ASSERT(offsetof(struct rnic_completion_header, reserved) == 12, "rnic_completion_header.reserved");

struct rnic_set_table {
	__u8 kind;
	__u8 log_entries;
	__le16 reserved0;
	__le32 reserved1;
	struct rnic_page_list_fields pages;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_set_table) == 24, "rnic_set_table");
RNIC_ASSERT(offsetof(struct rnic_set_table, kind) == 0, "rnic_set_table.kind");
RNIC_ASSERT(offsetof(struct rnic_set_table, log_entries) == 1, "rnic_set_table.log_entries");
RNIC_ASSERT(offsetof(struct rnic_set_table, reserved0) == 2, "rnic_set_table.reserved0");
RNIC_ASSERT(offsetof(struct rnic_set_table, reserved1) == 4, "rnic_set_table.reserved1");
RNIC_ASSERT(offsetof(struct rnic_set_table, pages) == 8, "rnic_set_table.pages");

struct rnic_flush_caches {
	__le32 mask;
	__le32 reserved;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_flush_caches) == 8, "rnic_flush_caches");
RNIC_ASSERT(offsetof(struct rnic_flush_caches, mask) == 0, "rnic_flush_caches.mask");
RNIC_ASSERT(offsetof(struct rnic_flush_caches, reserved) == 4, "rnic_flush_caches.reserved");

struct rnic_set_gid {
	__le16 index;
	__u8 valid;
	__u8 reserved0;
	__le16 vlan_id;
	__u8 mac[6];
	__u8 gid[16];
	__le32 reserved1;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_set_gid) == 32, "rnic_set_gid");
RNIC_ASSERT(offsetof(struct rnic_set_gid, index) == 0, "rnic_set_gid.index");
RNIC_ASSERT(offsetof(struct rnic_set_gid, valid) == 2, "rnic_set_gid.valid");
RNIC_ASSERT(offsetof(struct rnic_set_gid, reserved0) == 3, "rnic_set_gid.reserved0");
RNIC_ASSERT(offsetof(struct rnic_set_gid, vlan_id) == 4, "rnic_set_gid.vlan_id");
RNIC_ASSERT(offsetof(struct rnic_set_gid, mac) == 6, "rnic_set_gid.mac");
RNIC_ASSERT(offsetof(struct rnic_set_gid, gid) == 12, "rnic_set_gid.gid");
RNIC_ASSERT(offsetof(struct rnic_set_gid, reserved1) == 28, "rnic_set_gid.reserved1");

struct rnic_create_eq {
	__le32 eqn;
	__le16 vector;
	__u8 log_entries;
	__u8 reserved0;
	__le64 reserved1;
	struct rnic_page_list_fields pages;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_create_eq) == 32, "rnic_create_eq");
RNIC_ASSERT(offsetof(struct rnic_create_eq, eqn) == 0, "rnic_create_eq.eqn");
RNIC_ASSERT(offsetof(struct rnic_create_eq, vector) == 4, "rnic_create_eq.vector");
RNIC_ASSERT(offsetof(struct rnic_create_eq, log_entries) == 6, "rnic_create_eq.log_entries");
RNIC_ASSERT(offsetof(struct rnic_create_eq, reserved0) == 7, "rnic_create_eq.reserved0");
RNIC_ASSERT(offsetof(struct rnic_create_eq, reserved1) == 8, "rnic_create_eq.reserved1");
RNIC_ASSERT(offsetof(struct rnic_create_eq, pages) == 16, "rnic_create_eq.pages");

struct rnic_create_cq {
	__le32 cqn;
	__le32 eqn;
	__le32 doorbell_page;
	__u8 log_entries;
	__u8 reserved0;
	__le16 reserved1;
	struct rnic_page_list_fields pages;
	__le64 consumer_record;
	__le64 reserved2;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_create_cq) == 48, "rnic_create_cq");
RNIC_ASSERT(offsetof(struct rnic_create_cq, cqn) == 0, "rnic_create_cq.cqn");
RNIC_ASSERT(offsetof(struct rnic_create_cq, eqn) == 4, "rnic_create_cq.eqn");
RNIC_ASSERT(offsetof(struct rnic_create_cq, doorbell_page) == 8, "rnic_create_cq.doorbell_page");
RNIC_ASSERT(offsetof(struct rnic_create_cq, log_entries) == 12, "rnic_create_cq.log_entries");
RNIC_ASSERT(offsetof(struct rnic_create_cq, reserved0) == 13, "rnic_create_cq.reserved0");
RNIC_ASSERT(offsetof(struct rnic_create_cq, reserved1) == 14, "rnic_create_cq.reserved1");
RNIC_ASSERT(offsetof(struct rnic_create_cq, pages) == 16, "rnic_create_cq.pages");
RNIC_ASSERT(offsetof(struct rnic_create_cq, consumer_record) == 32, "rnic_create_cq.consumer_record");
RNIC_ASSERT(offsetof(struct rnic_create_cq, reserved2) == 40, "rnic_create_cq.reserved2");

struct rnic_modify_cq {
	__le32 cqn;
	__le16 count;
	__le16 period_us;
	__le64 reserved;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_modify_cq) == 16, "rnic_modify_cq");
RNIC_ASSERT(offsetof(struct rnic_modify_cq, cqn) == 0, "rnic_modify_cq.cqn");
RNIC_ASSERT(offsetof(struct rnic_modify_cq, count) == 4, "rnic_modify_cq.count");
RNIC_ASSERT(offsetof(struct rnic_modify_cq, period_us) == 6, "rnic_modify_cq.period_us");
RNIC_ASSERT(offsetof(struct rnic_modify_cq, reserved) == 8, "rnic_modify_cq.reserved");

struct rnic_resize_cq {
	__le32 cqn;
	__u8 log_entries;
	__u8 reserved0;
	__le16 reserved1;
	struct rnic_page_list_fields pages;
	__le64 reserved2;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_resize_cq) == 32, "rnic_resize_cq");
RNIC_ASSERT(offsetof(struct rnic_resize_cq, cqn) == 0, "rnic_resize_cq.cqn");
RNIC_ASSERT(offsetof(struct rnic_resize_cq, log_entries) == 4, "rnic_resize_cq.log_entries");
RNIC_ASSERT(offsetof(struct rnic_resize_cq, reserved0) == 5, "rnic_resize_cq.reserved0");
RNIC_ASSERT(offsetof(struct rnic_resize_cq, reserved1) == 6, "rnic_resize_cq.reserved1");
RNIC_ASSERT(offsetof(struct rnic_resize_cq, pages) == 8, "rnic_resize_cq.pages");
RNIC_ASSERT(offsetof(struct rnic_resize_cq, reserved2) == 24, "rnic_resize_cq.reserved2");

struct rnic_cq_position {
	__le32 first_index;
	__le32 reserved;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_cq_position) == 8, "rnic_cq_position");
RNIC_ASSERT(offsetof(struct rnic_cq_position, first_index) == 0, "rnic_cq_position.first_index");
RNIC_ASSERT(offsetof(struct rnic_cq_position, reserved) == 4, "rnic_cq_position.reserved");

struct rnic_create_srq {
	__le32 srqn;
	__u8 flags;
	__u8 log_slots;
	__u8 log_stride;
	__u8 reserved0;
	__le32 pdn;
	__le32 doorbell_page;
	__le16 limit;
	__le16 reserved1;
	__le32 cqn;
	__le32 xrc_domain;
	__le32 reserved2;
	struct rnic_page_list_fields wqe_pages;
	struct rnic_page_list_fields index_pages;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_create_srq) == 64, "rnic_create_srq");
RNIC_ASSERT(offsetof(struct rnic_create_srq, srqn) == 0, "rnic_create_srq.srqn");
RNIC_ASSERT(offsetof(struct rnic_create_srq, flags) == 4, "rnic_create_srq.flags");
RNIC_ASSERT(offsetof(struct rnic_create_srq, log_slots) == 5, "rnic_create_srq.log_slots");
RNIC_ASSERT(offsetof(struct rnic_create_srq, log_stride) == 6, "rnic_create_srq.log_stride");
RNIC_ASSERT(offsetof(struct rnic_create_srq, reserved0) == 7, "rnic_create_srq.reserved0");
RNIC_ASSERT(offsetof(struct rnic_create_srq, pdn) == 8, "rnic_create_srq.pdn");
RNIC_ASSERT(offsetof(struct rnic_create_srq, doorbell_page) == 12, "rnic_create_srq.doorbell_page");
RNIC_ASSERT(offsetof(struct rnic_create_srq, limit) == 16, "rnic_create_srq.limit");
RNIC_ASSERT(offsetof(struct rnic_create_srq, reserved1) == 18, "rnic_create_srq.reserved1");
RNIC_ASSERT(offsetof(struct rnic_create_srq, cqn) == 20, "rnic_create_srq.cqn");
RNIC_ASSERT(offsetof(struct rnic_create_srq, xrc_domain) == 24, "rnic_create_srq.xrc_domain");
RNIC_ASSERT(offsetof(struct rnic_create_srq, reserved2) == 28, "rnic_create_srq.reserved2");
RNIC_ASSERT(offsetof(struct rnic_create_srq, wqe_pages) == 32, "rnic_create_srq.wqe_pages");
RNIC_ASSERT(offsetof(struct rnic_create_srq, index_pages) == 48, "rnic_create_srq.index_pages");

struct rnic_modify_srq {
	__le32 srqn;
	__le16 limit;
	__le16 reserved;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_modify_srq) == 8, "rnic_modify_srq");
RNIC_ASSERT(offsetof(struct rnic_modify_srq, srqn) == 0, "rnic_modify_srq.srqn");
RNIC_ASSERT(offsetof(struct rnic_modify_srq, limit) == 4, "rnic_modify_srq.limit");
RNIC_ASSERT(offsetof(struct rnic_modify_srq, reserved) == 6, "rnic_modify_srq.reserved");

struct rnic_srq_state {
	__le16 limit;
	__le16 available;
	__le16 consumer;
	__le16 reserved0;
	__le64 reserved1;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_srq_state) == 16, "rnic_srq_state");
RNIC_ASSERT(offsetof(struct rnic_srq_state, limit) == 0, "rnic_srq_state.limit");
RNIC_ASSERT(offsetof(struct rnic_srq_state, available) == 2, "rnic_srq_state.available");
RNIC_ASSERT(offsetof(struct rnic_srq_state, consumer) == 4, "rnic_srq_state.consumer");
RNIC_ASSERT(offsetof(struct rnic_srq_state, reserved0) == 6, "rnic_srq_state.reserved0");
RNIC_ASSERT(offsetof(struct rnic_srq_state, reserved1) == 8, "rnic_srq_state.reserved1");

struct rnic_create_qp {
	__le32 qpn;
	__u8 qp_type;
	__u8 flags;
	__u8 log_sq_slots;
	__u8 log_rq_entries;
	__u8 log_rq_stride;
	__u8 reserved0;
	__le16 reserved1;
	__le32 pdn;
	__le32 send_cqn;
	__le32 receive_cqn;
	__le32 doorbell_page;
	__le32 srqn;
	struct rnic_page_list_fields sq_pages;
	struct rnic_page_list_fields rq_pages;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_create_qp) == 64, "rnic_create_qp");
RNIC_ASSERT(offsetof(struct rnic_create_qp, qpn) == 0, "rnic_create_qp.qpn");
RNIC_ASSERT(offsetof(struct rnic_create_qp, qp_type) == 4, "rnic_create_qp.qp_type");
RNIC_ASSERT(offsetof(struct rnic_create_qp, flags) == 5, "rnic_create_qp.flags");
RNIC_ASSERT(offsetof(struct rnic_create_qp, log_sq_slots) == 6, "rnic_create_qp.log_sq_slots");
RNIC_ASSERT(offsetof(struct rnic_create_qp, log_rq_entries) == 7, "rnic_create_qp.log_rq_entries");
RNIC_ASSERT(offsetof(struct rnic_create_qp, log_rq_stride) == 8, "rnic_create_qp.log_rq_stride");
RNIC_ASSERT(offsetof(struct rnic_create_qp, reserved0) == 9, "rnic_create_qp.reserved0");
RNIC_ASSERT(offsetof(struct rnic_create_qp, reserved1) == 10, "rnic_create_qp.reserved1");
RNIC_ASSERT(offsetof(struct rnic_create_qp, pdn) == 12, "rnic_create_qp.pdn");
RNIC_ASSERT(offsetof(struct rnic_create_qp, send_cqn) == 16, "rnic_create_qp.send_cqn");
RNIC_ASSERT(offsetof(struct rnic_create_qp, receive_cqn) == 20, "rnic_create_qp.receive_cqn");
RNIC_ASSERT(offsetof(struct rnic_create_qp, doorbell_page) == 24, "rnic_create_qp.doorbell_page");
RNIC_ASSERT(offsetof(struct rnic_create_qp, srqn) == 28, "rnic_create_qp.srqn");
RNIC_ASSERT(offsetof(struct rnic_create_qp, sq_pages) == 32, "rnic_create_qp.sq_pages");
RNIC_ASSERT(offsetof(struct rnic_create_qp, rq_pages) == 48, "rnic_create_qp.rq_pages");

struct rnic_address_vector {
	__u8 dest_gid[16];
	__u8 dest_mac[6];
	__le16 sgid_index;
	__le32 flow_label;
	__u8 traffic_class;
	__u8 hop_limit;
	__u8 service_level;
	__u8 reserved0;
	__le32 reserved1;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_address_vector) == 36, "rnic_address_vector");
RNIC_ASSERT(offsetof(struct rnic_address_vector, dest_gid) == 0, "rnic_address_vector.dest_gid");
RNIC_ASSERT(offsetof(struct rnic_address_vector, dest_mac) == 16, "rnic_address_vector.dest_mac");
RNIC_ASSERT(offsetof(struct rnic_address_vector, sgid_index) == 22, "rnic_address_vector.sgid_index");
RNIC_ASSERT(offsetof(struct rnic_address_vector, flow_label) == 24, "rnic_address_vector.flow_label");
RNIC_ASSERT(offsetof(struct rnic_address_vector, traffic_class) == 28, "rnic_address_vector.traffic_class");
RNIC_ASSERT(offsetof(struct rnic_address_vector, hop_limit) == 29, "rnic_address_vector.hop_limit");
RNIC_ASSERT(offsetof(struct rnic_address_vector, service_level) == 30, "rnic_address_vector.service_level");
RNIC_ASSERT(offsetof(struct rnic_address_vector, reserved0) == 31, "rnic_address_vector.reserved0");
RNIC_ASSERT(offsetof(struct rnic_address_vector, reserved1) == 32, "rnic_address_vector.reserved1");

struct rnic_flush_segment {
	__le32 length_bytes;
	__le32 placement;
	__le64 reserved;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_flush_segment) == 16, "rnic_flush_segment");
RNIC_ASSERT(offsetof(struct rnic_flush_segment, length_bytes) == 0, "rnic_flush_segment.length_bytes");
RNIC_ASSERT(offsetof(struct rnic_flush_segment, placement) == 4, "rnic_flush_segment.placement");
RNIC_ASSERT(offsetof(struct rnic_flush_segment, reserved) == 8, "rnic_flush_segment.reserved");

struct rnic_datagram_segment {
	struct rnic_address_vector av;
	__le32 dest_qpn;
	__le32 qkey;
	__le16 pkey_index;
	__le16 reserved;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_datagram_segment) == 48, "rnic_datagram_segment");
RNIC_ASSERT(offsetof(struct rnic_datagram_segment, av) == 0, "rnic_datagram_segment.av");
RNIC_ASSERT(offsetof(struct rnic_datagram_segment, dest_qpn) == 36, "rnic_datagram_segment.dest_qpn");
RNIC_ASSERT(offsetof(struct rnic_datagram_segment, qkey) == 40, "rnic_datagram_segment.qkey");
RNIC_ASSERT(offsetof(struct rnic_datagram_segment, pkey_index) == 44, "rnic_datagram_segment.pkey_index");
RNIC_ASSERT(offsetof(struct rnic_datagram_segment, reserved) == 46, "rnic_datagram_segment.reserved");

struct rnic_qp_attributes {
	__le32 qpn;
	__le32 mask;
	__u8 state;
	__u8 current_state;
	__u8 path_mtu;
	__u8 port;
	__le32 access;
	__le16 pkey_index;
	__u8 max_rd_atomic;
	__u8 max_dest_rd_atomic;
	__u8 min_rnr_timer;
	__u8 timeout;
	__u8 retry_cnt;
	__u8 rnr_retry;
	__le32 rq_psn;
	__le32 sq_psn;
	__le32 dest_qpn;
	__le32 qkey;
	struct rnic_address_vector av;
	__u8 sqd_notify;
	__u8 reserved0;
	__le16 reserved1;
	__u8 reserved2[16];
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_qp_attributes) == 96, "rnic_qp_attributes");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, qpn) == 0, "rnic_qp_attributes.qpn");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, mask) == 4, "rnic_qp_attributes.mask");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, state) == 8, "rnic_qp_attributes.state");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, current_state) == 9, "rnic_qp_attributes.current_state");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, path_mtu) == 10, "rnic_qp_attributes.path_mtu");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, port) == 11, "rnic_qp_attributes.port");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, access) == 12, "rnic_qp_attributes.access");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, pkey_index) == 16, "rnic_qp_attributes.pkey_index");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, max_rd_atomic) == 18, "rnic_qp_attributes.max_rd_atomic");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, max_dest_rd_atomic) == 19, "rnic_qp_attributes.max_dest_rd_atomic");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, min_rnr_timer) == 20, "rnic_qp_attributes.min_rnr_timer");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, timeout) == 21, "rnic_qp_attributes.timeout");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, retry_cnt) == 22, "rnic_qp_attributes.retry_cnt");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, rnr_retry) == 23, "rnic_qp_attributes.rnr_retry");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, rq_psn) == 24, "rnic_qp_attributes.rq_psn");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, sq_psn) == 28, "rnic_qp_attributes.sq_psn");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, dest_qpn) == 32, "rnic_qp_attributes.dest_qpn");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, qkey) == 36, "rnic_qp_attributes.qkey");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, av) == 40, "rnic_qp_attributes.av");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, sqd_notify) == 76, "rnic_qp_attributes.sqd_notify");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, reserved0) == 77, "rnic_qp_attributes.reserved0");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, reserved1) == 78, "rnic_qp_attributes.reserved1");
RNIC_ASSERT(offsetof(struct rnic_qp_attributes, reserved2) == 80, "rnic_qp_attributes.reserved2");

struct rnic_multicast_group {
	__le32 qpn;
	__le32 reserved;
	__u8 gid[16];
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_multicast_group) == 24, "rnic_multicast_group");
RNIC_ASSERT(offsetof(struct rnic_multicast_group, qpn) == 0, "rnic_multicast_group.qpn");
RNIC_ASSERT(offsetof(struct rnic_multicast_group, reserved) == 4, "rnic_multicast_group.reserved");
RNIC_ASSERT(offsetof(struct rnic_multicast_group, gid) == 8, "rnic_multicast_group.gid");

struct rnic_register_key {
	__le32 key;
	__le32 pdn;
	__le32 access;
	__le32 changes;
	__le64 start;
	__le64 length_bytes;
	struct rnic_page_list_fields pages;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_register_key) == 48, "rnic_register_key");
RNIC_ASSERT(offsetof(struct rnic_register_key, key) == 0, "rnic_register_key.key");
RNIC_ASSERT(offsetof(struct rnic_register_key, pdn) == 4, "rnic_register_key.pdn");
RNIC_ASSERT(offsetof(struct rnic_register_key, access) == 8, "rnic_register_key.access");
RNIC_ASSERT(offsetof(struct rnic_register_key, changes) == 12, "rnic_register_key.changes");
RNIC_ASSERT(offsetof(struct rnic_register_key, start) == 16, "rnic_register_key.start");
RNIC_ASSERT(offsetof(struct rnic_register_key, length_bytes) == 24, "rnic_register_key.length_bytes");
RNIC_ASSERT(offsetof(struct rnic_register_key, pages) == 32, "rnic_register_key.pages");

struct rnic_allocate_key {
	__le32 key;
	__le32 pdn;
	__u8 kind;
	__u8 reserved0;
	__le16 reserved1;
	__le32 max_pages;
	__le64 reserved2;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_allocate_key) == 24, "rnic_allocate_key");
RNIC_ASSERT(offsetof(struct rnic_allocate_key, key) == 0, "rnic_allocate_key.key");
RNIC_ASSERT(offsetof(struct rnic_allocate_key, pdn) == 4, "rnic_allocate_key.pdn");
RNIC_ASSERT(offsetof(struct rnic_allocate_key, kind) == 8, "rnic_allocate_key.kind");
RNIC_ASSERT(offsetof(struct rnic_allocate_key, reserved0) == 9, "rnic_allocate_key.reserved0");
RNIC_ASSERT(offsetof(struct rnic_allocate_key, reserved1) == 10, "rnic_allocate_key.reserved1");
RNIC_ASSERT(offsetof(struct rnic_allocate_key, max_pages) == 12, "rnic_allocate_key.max_pages");
RNIC_ASSERT(offsetof(struct rnic_allocate_key, reserved2) == 16, "rnic_allocate_key.reserved2");

struct rnic_object_number {
	__le32 number;
	__le32 reserved;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_object_number) == 8, "rnic_object_number");
RNIC_ASSERT(offsetof(struct rnic_object_number, number) == 0, "rnic_object_number.number");
RNIC_ASSERT(offsetof(struct rnic_object_number, reserved) == 4, "rnic_object_number.reserved");

struct rnic_device_limits {
	__u8 log_qps;
	__u8 log_cqs;
	__u8 log_keys;
	__u8 log_sq_slots;
	__u8 log_rq_entries;
	__u8 log_cq_entries;
	__u8 log_eq_entries;
	__u8 max_send_sge;
	__u8 max_receive_sge;
	__u8 ports;
	__le16 max_inline_bytes;
	__le16 max_eqs;
	__le16 gids;
	__le16 pkeys;
	__le16 vectors;
	__le16 qp_context_bytes;
	__le16 cq_context_bytes;
	__le16 key_context_bytes;
	__le16 rd_atomic_context_bytes;
	__le32 max_message_bytes;
	__le32 doorbell_pages;
	__le32 qp_cache_entries;
	__le32 cq_cache_entries;
	__le32 key_cache_entries;
	__le32 rd_atomic_cache_entries;
	__u8 max_rd_atomic;
	__u8 max_group_qps;
	__le16 max_multicast_groups;
	__le16 srq_context_bytes;
	__u8 log_srqs;
	__u8 log_srq_slots;
	__le32 srq_cache_entries;
	__le32 local_dma_key;
	__le32 max_fast_register_pages;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_device_limits) == 72, "rnic_device_limits");
RNIC_ASSERT(offsetof(struct rnic_device_limits, log_qps) == 0, "rnic_device_limits.log_qps");
RNIC_ASSERT(offsetof(struct rnic_device_limits, log_cqs) == 1, "rnic_device_limits.log_cqs");
RNIC_ASSERT(offsetof(struct rnic_device_limits, log_keys) == 2, "rnic_device_limits.log_keys");
RNIC_ASSERT(offsetof(struct rnic_device_limits, log_sq_slots) == 3, "rnic_device_limits.log_sq_slots");
RNIC_ASSERT(offsetof(struct rnic_device_limits, log_rq_entries) == 4, "rnic_device_limits.log_rq_entries");
RNIC_ASSERT(offsetof(struct rnic_device_limits, log_cq_entries) == 5, "rnic_device_limits.log_cq_entries");
RNIC_ASSERT(offsetof(struct rnic_device_limits, log_eq_entries) == 6, "rnic_device_limits.log_eq_entries");
RNIC_ASSERT(offsetof(struct rnic_device_limits, max_send_sge) == 7, "rnic_device_limits.max_send_sge");
RNIC_ASSERT(offsetof(struct rnic_device_limits, max_receive_sge) == 8, "rnic_device_limits.max_receive_sge");
RNIC_ASSERT(offsetof(struct rnic_device_limits, ports) == 9, "rnic_device_limits.ports");
RNIC_ASSERT(offsetof(struct rnic_device_limits, max_inline_bytes) == 10, "rnic_device_limits.max_inline_bytes");
RNIC_ASSERT(offsetof(struct rnic_device_limits, max_eqs) == 12, "rnic_device_limits.max_eqs");
RNIC_ASSERT(offsetof(struct rnic_device_limits, gids) == 14, "rnic_device_limits.gids");
RNIC_ASSERT(offsetof(struct rnic_device_limits, pkeys) == 16, "rnic_device_limits.pkeys");
RNIC_ASSERT(offsetof(struct rnic_device_limits, vectors) == 18, "rnic_device_limits.vectors");
RNIC_ASSERT(offsetof(struct rnic_device_limits, qp_context_bytes) == 20, "rnic_device_limits.qp_context_bytes");
RNIC_ASSERT(offsetof(struct rnic_device_limits, cq_context_bytes) == 22, "rnic_device_limits.cq_context_bytes");
RNIC_ASSERT(offsetof(struct rnic_device_limits, key_context_bytes) == 24, "rnic_device_limits.key_context_bytes");
RNIC_ASSERT(offsetof(struct rnic_device_limits, rd_atomic_context_bytes) == 26, "rnic_device_limits.rd_atomic_context_bytes");
RNIC_ASSERT(offsetof(struct rnic_device_limits, max_message_bytes) == 28, "rnic_device_limits.max_message_bytes");
RNIC_ASSERT(offsetof(struct rnic_device_limits, doorbell_pages) == 32, "rnic_device_limits.doorbell_pages");
RNIC_ASSERT(offsetof(struct rnic_device_limits, qp_cache_entries) == 36, "rnic_device_limits.qp_cache_entries");
RNIC_ASSERT(offsetof(struct rnic_device_limits, cq_cache_entries) == 40, "rnic_device_limits.cq_cache_entries");
RNIC_ASSERT(offsetof(struct rnic_device_limits, key_cache_entries) == 44, "rnic_device_limits.key_cache_entries");
RNIC_ASSERT(offsetof(struct rnic_device_limits, rd_atomic_cache_entries) == 48, "rnic_device_limits.rd_atomic_cache_entries");
RNIC_ASSERT(offsetof(struct rnic_device_limits, max_rd_atomic) == 52, "rnic_device_limits.max_rd_atomic");
RNIC_ASSERT(offsetof(struct rnic_device_limits, max_group_qps) == 53, "rnic_device_limits.max_group_qps");
RNIC_ASSERT(offsetof(struct rnic_device_limits, max_multicast_groups) == 54, "rnic_device_limits.max_multicast_groups");
RNIC_ASSERT(offsetof(struct rnic_device_limits, srq_context_bytes) == 56, "rnic_device_limits.srq_context_bytes");
RNIC_ASSERT(offsetof(struct rnic_device_limits, log_srqs) == 58, "rnic_device_limits.log_srqs");
RNIC_ASSERT(offsetof(struct rnic_device_limits, log_srq_slots) == 59, "rnic_device_limits.log_srq_slots");
RNIC_ASSERT(offsetof(struct rnic_device_limits, srq_cache_entries) == 60, "rnic_device_limits.srq_cache_entries");
RNIC_ASSERT(offsetof(struct rnic_device_limits, local_dma_key) == 64, "rnic_device_limits.local_dma_key");
RNIC_ASSERT(offsetof(struct rnic_device_limits, max_fast_register_pages) == 68, "rnic_device_limits.max_fast_register_pages");

struct rnic_queue_state {
	__le16 sq_consumer;
	__le16 rq_consumer;
	__le32 reserved;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_queue_state) == 8, "rnic_queue_state");
RNIC_ASSERT(offsetof(struct rnic_queue_state, sq_consumer) == 0, "rnic_queue_state.sq_consumer");
RNIC_ASSERT(offsetof(struct rnic_queue_state, rq_consumer) == 2, "rnic_queue_state.rq_consumer");
RNIC_ASSERT(offsetof(struct rnic_queue_state, reserved) == 4, "rnic_queue_state.reserved");

struct rnic_query_counters {
	__u8 group;
	__u8 reserved0;
	__le16 first;
	__le32 reserved1;
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_query_counters) == 8, "rnic_query_counters");
RNIC_ASSERT(offsetof(struct rnic_query_counters, group) == 0, "rnic_query_counters.group");
RNIC_ASSERT(offsetof(struct rnic_query_counters, reserved0) == 1, "rnic_query_counters.reserved0");
RNIC_ASSERT(offsetof(struct rnic_query_counters, first) == 2, "rnic_query_counters.first");
RNIC_ASSERT(offsetof(struct rnic_query_counters, reserved1) == 4, "rnic_query_counters.reserved1");

struct rnic_counter_values {
	__le16 total;
	__le16 count;
	__le32 reserved;
	__le64 values[12];
} __attribute__((packed));
RNIC_ASSERT(sizeof(struct rnic_counter_values) == 104, "rnic_counter_values");
RNIC_ASSERT(offsetof(struct rnic_counter_values, total) == 0, "rnic_counter_values.total");
RNIC_ASSERT(offsetof(struct rnic_counter_values, count) == 2, "rnic_counter_values.count");
RNIC_ASSERT(offsetof(struct rnic_counter_values, reserved) == 4, "rnic_counter_values.reserved");
RNIC_ASSERT(offsetof(struct rnic_counter_values, values) == 8, "rnic_counter_values.values");

/* X(number, name, sentence): every rule, by number. */
#define RNIC_DIAGNOSTICS(X) \
	X(100, RNIC_REGISTER_ACCESS, "a register access of this size, alignment or offset does not exist") \
	X(101, RNIC_REGISTER_READ_ONLY, "the register is read-only") \
	X(102, RNIC_REGISTER_WHILE_ENABLED, "the register can be written only while the device is disabled") \
	X(103, RNIC_COMMAND_RING_INVALID, "the command ring is not usable: its addresses must be aligned to 4096 and its log size at most 8") \
	X(104, RNIC_COMMAND_DOORBELL_RANGE, "the command doorbell is further ahead than the ring has slots") \
	X(105, RNIC_DEVICE_DISABLED, "the device is disabled") \
	X(106, RNIC_DEVICE_FATAL, "the device has stopped after an error; reset it") \
	X(200, RNIC_DOORBELL_ACCESS, "no doorbell has this offset, size or alignment") \
	X(201, RNIC_DOORBELL_RESERVED, "reserved bits of the doorbell are not zero") \
	X(202, RNIC_DOORBELL_FOREIGN_PAGE, "the queue was created with another doorbell page") \
	X(203, RNIC_DOORBELL_NO_QUEUE, "no queue has this number") \
	X(204, RNIC_DOORBELL_BEYOND_RING, "the producer index is further ahead than the ring has slots") \
	X(205, RNIC_DOORBELL_STATE, "the queue pair's state does not take this doorbell") \
	X(206, RNIC_DOORBELL_TORN_LINE, "a 64-byte line arrived in pieces and counts as its first 8 bytes") \
	X(207, RNIC_ARM_STALE, "the arm's sequence is not the one that is due: the next one after an event, else the last one again") \
	X(208, RNIC_ARM_CONSUMER_AHEAD, "the consumer index is ahead of the producer") \
	X(209, RNIC_EQ_UPDATE_FOREIGN, "event queues are updated on doorbell page 0 only") \
	X(210, RNIC_EQ_CONSUMER_AHEAD, "the event queue's consumer index is ahead of its producer") \
	X(300, RNIC_COMMAND_OPCODE_UNKNOWN, "no command has this opcode") \
	X(301, RNIC_COMMAND_RESERVED, "a reserved field of the command is not zero") \
	X(302, RNIC_COMMAND_FETCH_FAULT, "the command could not be read from host memory") \
	X(303, RNIC_PARAMETER_RANGE, "a parameter is outside its range") \
	X(304, RNIC_OBJECT_MISSING, "the object does not exist") \
	X(305, RNIC_OBJECT_EXISTS, "the object's number is in use") \
	X(306, RNIC_TABLE_MISSING, "the object's table has not been set, or is too small for its number") \
	X(307, RNIC_TABLE_IN_USE, "the table cannot be replaced while objects live in it") \
	X(308, RNIC_OBJECT_BUSY, "the object is still used by others") \
	X(309, RNIC_PAGE_LIST_INVALID, "the page list is not usable: page_shift 12..30, levels 0..2, root and pages aligned") \
	X(310, RNIC_DOORBELL_PAGE_RANGE, "the doorbell page does not exist") \
	X(311, RNIC_VECTOR_RANGE, "the MSI-X vector does not exist") \
	X(312, RNIC_VECTOR_UNUSABLE, "the MSI-X vector has no receiver") \
	X(313, RNIC_QP_TYPE_UNSUPPORTED, "the queue pair type is not supported") \
	X(314, RNIC_GID_EXISTS, "another entry of the GID table holds this GID in the same VLAN") \
	X(315, RNIC_MULTICAST_GID, "the group's GID is not a multicast address") \
	X(316, RNIC_MULTICAST_QUEUE_PAIR, "only datagram queue pairs take the packets of groups") \
	X(317, RNIC_MULTICAST_FULL, "there is no room for another group, or for another queue pair in it") \
	X(318, RNIC_XRC_QUEUE, "an XRC shared receive queue belongs to no queue pair: the requests that XRC targets get name it") \
	X(320, RNIC_MODIFY_TRANSITION, "no transition leads from the present state to this one") \
	X(321, RNIC_MODIFY_MISSING, "a required attribute is missing") \
	X(322, RNIC_MODIFY_ILLEGAL, "an attribute is not allowed in this transition") \
	X(323, RNIC_MODIFY_CURRENT_STATE, "the queue pair is not in the given current state") \
	X(324, RNIC_MODIFY_VALUE, "the value of an attribute is outside its range") \
	X(325, RNIC_ACCESS_NEEDS_LOCAL_WRITE, "remote write or atomic access needs local write access") \
	X(326, RNIC_REGION_WRAPS, "the region wraps around the address space or is larger than its page list can be") \
	X(327, RNIC_MODIFY_UNSUPPORTED, "the attribute belongs to a feature that the device does not have") \
	X(330, RNIC_CONTEXT_FAULT, "a context could not be read from or written to its table") \
	X(331, RNIC_CONTEXT_INVALID, "what came back from a context table is not what the device wrote") \
	X(400, RNIC_WQE_FETCH_FAULT, "work requests could not be read from the ring") \
	X(401, RNIC_WQE_OPCODE, "the work request's opcode is unknown or not allowed on this queue pair") \
	X(402, RNIC_WQE_RESERVED, "reserved bits of the work request are not zero") \
	X(403, RNIC_WQE_QPN, "the work request names another queue") \
	X(404, RNIC_WQE_INDEX, "the work request's slot index is not its place in the ring") \
	X(405, RNIC_WQE_LENGTH, "the work request's length does not fit its contents, its slots or the producer index") \
	X(406, RNIC_WQE_INLINE, "the inline data are longer than allowed") \
	X(407, RNIC_MESSAGE_TOO_LONG, "the message is longer than 2^31 bytes") \
	X(408, RNIC_ATOMIC_LENGTH, "the elements of an atomic or an ATOMIC_WRITE are not 8 bytes together") \
	X(409, RNIC_WQE_INLINE_READ, "the work request has no payload that could be inline") \
	X(410, RNIC_RECEIVE_FETCH_FAULT, "a receive work request could not be read from its ring") \
	X(411, RNIC_READ_NOT_ENABLED, "the queue pair's max_rd_atomic is 0: it may have no READ or atomic outstanding") \
	X(412, RNIC_READ_TOO_LONG, "the READ's responses would take 2^23 PSNs or more") \
	X(413, RNIC_DATAGRAM_TOO_LONG, "the datagram is longer than the port's MTU") \
	X(414, RNIC_DATAGRAM_ADDRESS, "the datagram's address cannot be used: GID index without entry, flow label, service level, QPN or P_Key index out of range") \
	X(415, RNIC_SRQ_INDEX, "the index ring of a shared receive queue names a slot that it does not have") \
	X(416, RNIC_SRQ_FETCH_FAULT, "the index ring of a shared receive queue could not be read") \
	X(417, RNIC_FLUSH_PLACEMENT, "the FLUSH says neither FLUSH_GLOBAL nor FLUSH_PERSISTENT") \
	X(420, RNIC_L_KEY_INVALID, "the local key is not valid") \
	X(421, RNIC_L_KEY_RANGE, "the local range lies outside its region") \
	X(422, RNIC_L_KEY_RIGHT, "the region does not grant local write") \
	X(423, RNIC_L_KEY_PD, "the region belongs to another protection domain") \
	X(430, RNIC_R_KEY_INVALID, "the remote key is not valid") \
	X(431, RNIC_R_KEY_RANGE, "the remote range lies outside its region") \
	X(432, RNIC_R_KEY_RIGHT, "the region does not grant the remote right") \
	X(433, RNIC_R_KEY_PD, "the region belongs to another protection domain than the queue pair") \
	X(440, RNIC_PAYLOAD_FAULT, "host memory did not answer a payload transfer") \
	X(441, RNIC_TRANSLATION_FAULT, "a page list could not be read or holds an unaligned address") \
	X(442, RNIC_INVALIDATE_REFUSED, "the key cannot be invalidated: it is not valid, of another protection domain, or was registered without INVALIDATE") \
	X(443, RNIC_BIND_WINDOW, "the key is not a window that this queue pair may bind now: unknown, of another protection domain, or a type 2 window that is bound") \
	X(444, RNIC_BIND_REGION, "no window can be bound to this region: not valid, of another protection domain, zero-based, or without MW_BIND, or LOCAL_WRITE for a window to write through") \
	X(445, RNIC_BIND_RANGE, "the window lies outside its region, or a type 2 window has no bytes") \
	X(446, RNIC_BIND_ACCESS, "the window cannot have these rights") \
	X(447, RNIC_REGISTER_STATE, "the key is not a free fast region of the queue pair's protection domain") \
	X(448, RNIC_REGISTER_SHAPE, "the fast registration's rights, range or page list are not usable, or it has more pages than were allocated") \
	X(449, RNIC_NOT_PRIVILEGED, "the work request is for privileged queue pairs") \
	X(500, RNIC_RECEIVE_TOO_SMALL, "the message is longer than the receive work request") \
	X(501, RNIC_INVALID_REQUEST, "the peer's request is not valid here: opcode sequence, length or right of the queue pair") \
	X(502, RNIC_REMOTE_INVALID_REQUEST, "the peer answered: invalid request") \
	X(503, RNIC_REMOTE_ACCESS_ERROR, "the peer answered: remote access error") \
	X(504, RNIC_REMOTE_OPERATIONAL_ERROR, "the peer answered: remote operational error") \
	X(505, RNIC_RETRY_EXCEEDED, "the peer did not answer within the retries") \
	X(506, RNIC_RNR_RETRY_EXCEEDED, "the peer had no receive work request within the retries") \
	X(507, RNIC_CQ_OVERRUN, "the completion queue is full") \
	X(508, RNIC_EQ_OVERRUN, "the event queue is full and an event was lost") \
	X(509, RNIC_CQ_RING_FAULT, "a completion could not be written") \
	X(510, RNIC_MSN_DISAGREES, "an acknowledgement's MSN does not agree with its PSN; the PSN decided") \
	X(511, RNIC_FLUSHED, "the queue pair is in the error state") \
	X(512, RNIC_EVENT_RING_FAULT, "an event could not be written") \
	X(513, RNIC_RD_ATOMIC_LIMIT, "the peer has more READs and atomics outstanding than max_dest_rd_atomic") \
	X(514, RNIC_ATOMIC_ALIGNMENT, "the peer's atomic or ATOMIC_WRITE is not aligned to 8 bytes") \
	X(515, RNIC_BAD_RESPONSE, "the peer's response is of another kind than the request, or out of place in its message") \
	X(516, RNIC_READ_RESPONSE_LENGTH, "a READ response is longer or shorter than what is missing") \
	X(517, RNIC_XRC_TARGET, "the peer's XRC request names a shared receive queue that is not an XRC one here, or another one than the message began with") \
	X(518, RNIC_XRC_DOMAIN, "the peer's XRC request names a shared receive queue of another XRC domain")

#undef RNIC_ASSERT
#endif /* RNIC_ABI_H */
