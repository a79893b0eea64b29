// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Where packets go: address vectors of connections, address handles of datagrams, multicast groups. */
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>

#include "rnic.h"

int rnic_put_address(struct rnic_address_vector *av, const struct rdma_ah_attr *ah)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(ah);

	if (ah->type != RDMA_AH_ATTR_TYPE_ROCE || !(rdma_ah_get_ah_flags(ah) & IB_AH_GRH))
		return -EINVAL;
	memset(av, 0, sizeof(*av));
	memcpy(av->dest_gid, grh->dgid.raw, sizeof(av->dest_gid));
	memcpy(av->dest_mac, ah->roce.dmac, sizeof(av->dest_mac));
	av->sgid_index = cpu_to_le16(grh->sgid_index);
	av->flow_label = cpu_to_le32(grh->flow_label & 0xfffff);
	av->traffic_class = grh->traffic_class;
	av->hop_limit = grh->hop_limit;
	av->service_level = rdma_ah_get_sl(ah) & 7;
	return 0;
}

void rnic_get_address(const struct rnic_address_vector *av, struct rdma_ah_attr *ah)
{
	union ib_gid dest;

	memcpy(dest.raw, av->dest_gid, sizeof(dest.raw));
	ah->type = RDMA_AH_ATTR_TYPE_ROCE;
	rdma_ah_set_grh(ah, &dest, le32_to_cpu(av->flow_label), le16_to_cpu(av->sgid_index), av->hop_limit,
			av->traffic_class);
	rdma_ah_set_ah_flags(ah, IB_AH_GRH);
	rdma_ah_set_port_num(ah, RNIC_PORT);
	rdma_ah_set_sl(ah, av->service_level);
	memcpy(ah->roce.dmac, av->dest_mac, sizeof(av->dest_mac));
}

/* A handle is an address ready for work requests; the device is not told. A process gets it to put it there itself. */
int rnic_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *attr, struct ib_udata *udata)
{
	struct rnic_uresp_create_ah answer = {};
	struct rnic_ah *ah = to_rnic_ah(ibah);
	int err;

	err = rnic_put_address(&ah->av, attr->ah_attr);
	if (err || !udata)
		return err;
	static_assert(sizeof(answer.address_vector) == sizeof(ah->av));
	memcpy(answer.address_vector, &ah->av, sizeof(ah->av));
	return ib_copy_to_udata(udata, &answer, min(sizeof(answer), udata->outlen));
}

int rnic_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	rnic_get_address(&to_rnic_ah(ibah)->av, attr);
	return 0;
}

int rnic_destroy_ah(struct ib_ah *ibah, u32 flags)
{
	return 0;
}

static int change_group(struct ib_qp *ibqp, const union ib_gid *gid, u8 opcode)
{
	struct rnic_multicast_group body = { .qpn = cpu_to_le32(to_rnic_qp(ibqp)->qpn) };
	struct rnic_dev *dev = to_rnic(ibqp->device);

	memcpy(body.gid, gid->raw, sizeof(body.gid));
	return rnic_command(dev, opcode, &body, sizeof(body), NULL, 0);
}

int rnic_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	return change_group(ibqp, gid, RNIC_COMMAND_OPCODE_ATTACH_MULTICAST);
}

/* A dead device has no groups. */
int rnic_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	int err = change_group(ibqp, gid, RNIC_COMMAND_OPCODE_DETACH_MULTICAST);

	return READ_ONCE(to_rnic(ibqp->device)->dead) ? 0 : err;
}
