locals {
  networks     = var.horovod_network.name == null ? [] : [var.horovod_network.name]
  worker_names = [for number in range(var.horovod_worker_node.count) : "${var.horovod_worker_node.name}-${number + 1}"]
}

resource "openstack_compute_instance_v2" "horovod_master" {
  name            = var.horovod_master_node.name
  flavor_name     = var.horovod_master_node.flavor_name
  image_id        = var.horovod_master_node.image_id
  key_pair        = var.horovod_master_node.key_pair
  security_groups = [openstack_networking_secgroup_v2.master.name, openstack_networking_secgroup_v2.nodes.name]
  user_data       = templatefile("${path.module}/cloud-init.yaml.tftpl", { name = var.horovod_master_node.name })

  dynamic "network" {
    for_each = local.networks
    content {
      name = network.value
    }
  }
}

resource "openstack_compute_instance_v2" "horovod_workers" {
  count           = var.horovod_worker_node.count
  name            = local.worker_names[count.index]
  flavor_name     = var.horovod_worker_node.flavor_name
  image_id        = var.horovod_worker_node.image_id
  key_pair        = var.horovod_worker_node.key_pair
  security_groups = [openstack_networking_secgroup_v2.nodes.name]
  user_data       = templatefile("${path.module}/cloud-init.yaml.tftpl", { name = local.worker_names[count.index] })

  dynamic "network" {
    for_each = local.networks
    content {
      name = network.value
    }
  }
}

resource "openstack_compute_floatingip_associate_v2" "horovod_master" {
  floating_ip = var.horovod_master_node.floating_ip
  instance_id = openstack_compute_instance_v2.horovod_master.id
}
