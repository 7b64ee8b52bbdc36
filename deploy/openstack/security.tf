# The world reaches ssh and Jupyter of the master. The private network reaches ssh of every node, which is how the
# controller gets there. Everything else is between the nodes alone: members of one group, not a range of addresses.

locals {
  master_ports = { ssh = 22, jupyter = var.jupyter_port }
}

resource "openstack_networking_secgroup_v2" "master" {
  name        = "${var.horovod_master_node.name}-access"
  description = "ssh and Jupyter of the Horovod master"
}

resource "openstack_networking_secgroup_v2" "nodes" {
  name        = "${var.horovod_master_node.name}-nodes"
  description = "between the nodes of the Horovod cluster"
}

resource "openstack_networking_secgroup_rule_v2" "master" {
  for_each          = local.master_ports
  security_group_id = openstack_networking_secgroup_v2.master.id
  description       = each.key
  direction         = "ingress"
  ethertype         = "IPv4"
  protocol          = "tcp"
  port_range_min    = each.value
  port_range_max    = each.value
  remote_ip_prefix  = var.admin_range
}

resource "openstack_networking_secgroup_rule_v2" "controller" {
  security_group_id = openstack_networking_secgroup_v2.nodes.id
  description       = "ssh from the private network"
  direction         = "ingress"
  ethertype         = "IPv4"
  protocol          = "tcp"
  port_range_min    = 22
  port_range_max    = 22
  remote_ip_prefix  = var.horovod_network.network_subnet_range
}

resource "openstack_networking_secgroup_rule_v2" "nodes" {
  for_each          = toset(["tcp", "udp"])
  security_group_id = openstack_networking_secgroup_v2.nodes.id
  description       = "${each.key} between nodes"
  direction         = "ingress"
  ethertype         = "IPv4"
  protocol          = each.key
  port_range_min    = 1
  port_range_max    = 65535
  remote_group_id   = openstack_networking_secgroup_v2.nodes.id
}

resource "openstack_networking_secgroup_rule_v2" "nodes_icmp" {
  security_group_id = openstack_networking_secgroup_v2.nodes.id
  description       = "icmp between nodes"
  direction         = "ingress"
  ethertype         = "IPv4"
  protocol          = "icmp"
  remote_group_id   = openstack_networking_secgroup_v2.nodes.id
}
