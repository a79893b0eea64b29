// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What the RDMA core asks about the device and its port, the GID table, and the table of all operations. */
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>

#include "rnic.h"

static int query_device(struct ib_device *ibdev, struct ib_device_attr *attr, struct ib_udata *udata)
{
	struct rnic_dev *dev = to_rnic(ibdev);
	const struct rnic_device_limits *limits = &dev->limits;

	if (udata && (udata->inlen || udata->outlen))
		return -EINVAL;
	memset(attr, 0, sizeof(*attr));
	attr->fw_ver = (u64)(dev->version >> 16) << 32 | (dev->version & 0xffff);
	attr->sys_image_guid = ibdev->node_guid;
	attr->vendor_id = RNIC_PCI_VENDOR_ID;
	attr->vendor_part_id = RNIC_PCI_DEVICE_ID;
	attr->hw_ver = dev->pdev->revision;
	attr->max_mr_size = BIT_ULL(40);
	attr->page_size_cap = GENMASK(30, 12);
	attr->max_qp = BIT(dev->log_qps) - 2;
	/* Any work request fits into the slots of the longest. */
	attr->max_qp_wr = BIT(min_t(u8, limits->log_sq_slots - 2, limits->log_rq_entries));
	attr->device_cap_flags = IB_DEVICE_CURR_QP_STATE_MOD | IB_DEVICE_SYS_IMAGE_GUID | IB_DEVICE_PORT_ACTIVE_EVENT |
				 IB_DEVICE_RC_RNR_NAK_GEN;
	/* Of every type of queue pair. */
	attr->max_send_sge = limits->max_send_sge;
	if (dev->features & RNIC_FEATURE_UD)
		attr->max_send_sge = min_t(int, attr->max_send_sge, RNIC_MAX_DATAGRAM_SGE);
	attr->max_recv_sge = limits->max_receive_sge;
	attr->max_sge_rd = limits->max_send_sge;
	attr->max_cq = BIT(dev->log_cqs) - 1;
	attr->max_cqe = BIT(limits->log_cq_entries);
	attr->max_mr = BIT(dev->log_keys) - 1;
	attr->max_pd = dev->max_pds;
	attr->max_qp_rd_atom = limits->max_rd_atomic;
	attr->max_qp_init_rd_atom = limits->max_rd_atomic;
	attr->max_res_rd_atom = attr->max_qp_rd_atom * attr->max_qp;
	attr->atomic_cap = dev->features & RNIC_FEATURE_ATOMIC ? IB_ATOMIC_HCA : IB_ATOMIC_NONE;
	if (dev->features & RNIC_FEATURE_UD)
		attr->max_ah = INT_MAX;
	if (dev->features & RNIC_FEATURE_MULTICAST) {
		attr->max_mcast_grp = le16_to_cpu(limits->max_multicast_groups);
		attr->max_mcast_qp_attach = limits->max_group_qps;
		attr->max_total_mcast_qp_attach = attr->max_mcast_grp * attr->max_mcast_qp_attach;
	}
	if (dev->features & RNIC_FEATURE_SRQ) {
		attr->max_srq = BIT(dev->log_srqs) - 1;
		attr->max_srq_wr = BIT(limits->log_srq_slots);
		attr->max_srq_sge = limits->max_receive_sge;
	}
	if (dev->features & RNIC_FEATURE_XRC)
		attr->device_cap_flags |= IB_DEVICE_XRC;
	if (dev->features & RNIC_FEATURE_FAST_REGISTER) {
		attr->device_cap_flags |= IB_DEVICE_MEM_MGT_EXTENSIONS;
		attr->max_fast_reg_page_list_len = rnic_max_fast_pages(dev);
	}
	if (dev->features & RNIC_FEATURE_WINDOW) {
		attr->device_cap_flags |= IB_DEVICE_MEM_WINDOW | IB_DEVICE_MEM_WINDOW_TYPE_2B;
		attr->max_mw = attr->max_mr;
	}
	if (dev->features & RNIC_FEATURE_ATOMIC_WRITE)
		attr->device_cap_flags |= IB_DEVICE_ATOMIC_WRITE;
	if (dev->features & RNIC_FEATURE_FLUSH)
		attr->device_cap_flags |= IB_DEVICE_FLUSH_GLOBAL | IB_DEVICE_FLUSH_PERSISTENT;
	if (dev->features & RNIC_FEATURE_LOCAL_DMA_KEY)
		attr->kernel_cap_flags |= IBK_LOCAL_DMA_LKEY;
	if (dev->features & RNIC_FEATURE_CQ_MODERATION) {
		attr->cq_caps.max_cq_moderation_count = U16_MAX;
		attr->cq_caps.max_cq_moderation_period = U16_MAX;
	}
	attr->max_pkeys = le16_to_cpu(limits->pkeys);
	attr->local_ca_ack_delay = 15;
	return 0;
}

static enum ib_mtu mtu_of(u32 bytes)
{
	return bytes >= 4096 ? IB_MTU_4096 : bytes >= 2048 ? IB_MTU_2048 : bytes >= 1024 ? IB_MTU_1024 :
	       bytes >= 512  ? IB_MTU_512 : IB_MTU_256;
}

static int query_port(struct ib_device *ibdev, u32 port, struct ib_port_attr *attr)
{
	struct rnic_dev *dev = to_rnic(ibdev);
	struct net_device *ndev = ib_device_get_netdev(ibdev, port);
	bool up = ndev && netif_running(ndev) && netif_carrier_ok(ndev);

	/* The caller has cleared it. Without a network device there are no addresses and so no port to use. */
	attr->state = up ? IB_PORT_ACTIVE : IB_PORT_DOWN;
	attr->phys_state = up ? IB_PORT_PHYS_STATE_LINK_UP : IB_PORT_PHYS_STATE_DISABLED;
	attr->max_mtu = mtu_of(dev->port_mtu);
	attr->active_mtu = attr->max_mtu;
	if (ndev)
		attr->active_mtu = min(attr->max_mtu, iboe_get_mtu(READ_ONCE(ndev->mtu)));
	attr->ip_gids = true;
	attr->gid_tbl_len = le16_to_cpu(dev->limits.gids);
	attr->pkey_tbl_len = le16_to_cpu(dev->limits.pkeys);
	attr->max_msg_sz = le32_to_cpu(dev->limits.max_message_bytes);
	attr->max_vl_num = 1;
	if (dev->features & RNIC_FEATURE_UD)
		attr->port_cap_flags = IB_PORT_CM_SUP;
	/* The link is as fast as the machine: the speed of the PCIe link stands for it. */
	attr->active_speed = IB_SPEED_EDR;
	attr->active_width = IB_WIDTH_4X;
	dev_put(ndev);
	return 0;
}

static int get_port_immutable(struct ib_device *ibdev, u32 port, struct ib_port_immutable *immutable)
{
	struct ib_port_attr attr;
	int err = ib_query_port(ibdev, port, &attr);

	if (err)
		return err;
	immutable->pkey_tbl_len = attr.pkey_tbl_len;
	immutable->gid_tbl_len = attr.gid_tbl_len;
	/* Without datagram queue pairs there is neither management traffic nor connection management. */
	immutable->core_cap_flags = RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP;
	if (to_rnic(ibdev)->features & RNIC_FEATURE_UD) {
		immutable->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
		immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	}
	return 0;
}

static enum rdma_link_layer get_link_layer(struct ib_device *ibdev, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

static int query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey)
{
	if (index)
		return -EINVAL;
	*pkey = IB_DEFAULT_PKEY_FULL;
	return 0;
}

static void get_dev_fw_str(struct ib_device *ibdev, char *text)
{
	u32 version = to_rnic(ibdev)->version;

	snprintf(text, IB_FW_VERSION_NAME_MAX, "%u.%u", version >> 16, version & 0xffff);
}

static int add_gid(const struct ib_gid_attr *attr, void **context)
{
	struct rnic_dev *dev = to_rnic(attr->device);
	struct rnic_set_gid body = { .index = cpu_to_le16(attr->index), .valid = 1 };
	u16 vlan = RNIC_NO_VLAN;
	int err;

	err = rdma_read_gid_l2_fields(attr, &vlan, body.mac);
	if (err)
		return err;
	body.vlan_id = cpu_to_le16(vlan < VLAN_N_VID ? vlan : RNIC_NO_VLAN);
	memcpy(body.gid, attr->gid.raw, sizeof(body.gid));
	return rnic_command(dev, RNIC_COMMAND_OPCODE_SET_GID, &body, sizeof(body), NULL, 0);
}

static int del_gid(const struct ib_gid_attr *attr, void **context)
{
	struct rnic_dev *dev = to_rnic(attr->device);
	struct rnic_set_gid body = { .index = cpu_to_le16(attr->index) };
	int err = rnic_command(dev, RNIC_COMMAND_OPCODE_SET_GID, &body, sizeof(body), NULL, 0);

	return READ_ONCE(dev->dead) ? 0 : err;
}

static const struct ib_device_ops operations = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.uverbs_abi_ver = RNIC_UVERBS_ABI_VERSION,

	.add_gid = add_gid,
	.alloc_pd = rnic_alloc_pd,
	.alloc_ucontext = rnic_alloc_ucontext,
	.create_cq = rnic_create_cq,
	.create_qp = rnic_create_qp,
	.dealloc_pd = rnic_dealloc_pd,
	.dealloc_ucontext = rnic_dealloc_ucontext,
	.del_gid = del_gid,
	.dereg_mr = rnic_dereg_mr,
	.destroy_cq = rnic_destroy_cq,
	.destroy_qp = rnic_destroy_qp,
	.disassociate_ucontext = rnic_disassociate_ucontext,
	.get_dev_fw_str = get_dev_fw_str,
	.get_dma_mr = rnic_get_dma_mr,
	.get_link_layer = get_link_layer,
	.get_port_immutable = get_port_immutable,
	.mmap = rnic_mmap,
	.mmap_free = rnic_mmap_free,
	.modify_qp = rnic_modify_qp,
	.poll_cq = rnic_poll_cq,
	.post_recv = rnic_post_recv,
	.post_send = rnic_post_send,
	.query_device = query_device,
	.query_pkey = query_pkey,
	.query_port = query_port,
	.query_qp = rnic_query_qp,
	.reg_user_mr = rnic_reg_user_mr,
	.req_notify_cq = rnic_req_notify_cq,

	INIT_RDMA_OBJ_SIZE(ib_cq, rnic_cq, ibcq),
	INIT_RDMA_OBJ_SIZE(ib_pd, rnic_pd, ibpd),
	INIT_RDMA_OBJ_SIZE(ib_qp, rnic_qp, ibqp),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, rnic_ucontext, ibucontext),
};

static const struct ib_device_ops datagram_operations = {
	.create_ah = rnic_create_ah,
	.create_user_ah = rnic_create_ah,
	.destroy_ah = rnic_destroy_ah,
	.query_ah = rnic_query_ah,

	INIT_RDMA_OBJ_SIZE(ib_ah, rnic_ah, ibah),
};

static const struct ib_device_ops multicast_operations = {
	.attach_mcast = rnic_attach_mcast,
	.detach_mcast = rnic_detach_mcast,
};

static const struct ib_device_ops srq_operations = {
	.create_srq = rnic_create_srq,
	.destroy_srq = rnic_destroy_srq,
	.modify_srq = rnic_modify_srq,
	.post_srq_recv = rnic_post_srq_recv,
	.query_srq = rnic_query_srq,

	INIT_RDMA_OBJ_SIZE(ib_srq, rnic_srq, ibsrq),
};

static const struct ib_device_ops xrc_operations = {
	.alloc_xrcd = rnic_alloc_xrcd,
	.dealloc_xrcd = rnic_dealloc_xrcd,

	INIT_RDMA_OBJ_SIZE(ib_xrcd, rnic_xrcd, ibxrcd),
};

static const struct ib_device_ops resize_operations = {
#ifdef RNIC_RESIZES_USER_CQS
	.resize_user_cq = rnic_resize_cq,
#else
	.resize_cq = rnic_resize_cq,
#endif
};

static const struct ib_device_ops moderation_operations = {
	.modify_cq = rnic_modify_cq,
};

static const struct ib_device_ops reregister_operations = {
	.rereg_user_mr = rnic_rereg_user_mr,
};

static const struct ib_device_ops fast_register_operations = {
	.alloc_mr = rnic_alloc_mr,
	.map_mr_sg = rnic_map_mr_sg,
};

static const struct ib_device_ops window_operations = {
	.alloc_mw = rnic_alloc_mw,
	.dealloc_mw = rnic_dealloc_mw,

	INIT_RDMA_OBJ_SIZE(ib_mw, rnic_mw, ibmw),
};

static const struct ib_device_ops counter_operations = {
	.alloc_hw_port_stats = rnic_alloc_hw_port_stats,
	.get_hw_stats = rnic_get_hw_stats,
};

static const struct {
	u64 feature;
	const struct ib_device_ops *operations;
} features[] = {
	{ RNIC_FEATURE_UD, &datagram_operations },
	{ RNIC_FEATURE_MULTICAST, &multicast_operations },
	{ RNIC_FEATURE_SRQ, &srq_operations },
	{ RNIC_FEATURE_XRC, &xrc_operations },
	{ RNIC_FEATURE_CQ_RESIZE, &resize_operations },
	{ RNIC_FEATURE_CQ_MODERATION, &moderation_operations },
	{ RNIC_FEATURE_REREGISTER, &reregister_operations },
	{ RNIC_FEATURE_FAST_REGISTER, &fast_register_operations },
	{ RNIC_FEATURE_WINDOW, &window_operations },
	{ RNIC_FEATURE_COUNTERS, &counter_operations },
};

/* What the device has not, the core refuses. */
void rnic_set_operations(struct rnic_dev *dev)
{
	unsigned int at;

	ib_set_device_ops(&dev->ibdev, &operations);
	for (at = 0; at < ARRAY_SIZE(features); at++)
		if (dev->features & features[at].feature)
			ib_set_device_ops(&dev->ibdev, features[at].operations);
}
