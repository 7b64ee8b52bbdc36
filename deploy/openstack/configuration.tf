# Once the nodes are there: writes the inventory, and runs Ansible over all of them. Both happen again when a node, a
# setting or a role has changed, and only then; the roles change nothing that is as it should be.

locals {
  work          = "${abspath(path.module)}/generated"
  ansible       = "${abspath(path.module)}/ansible"
  ansible_files = sort(fileset(local.ansible, "**"))
  master        = openstack_compute_instance_v2.horovod_master
  workers       = openstack_compute_instance_v2.horovod_workers
  node_ids      = [for node in concat([local.master], local.workers) : node.id]
  entrance      = "${var.ssh_user}@${var.horovod_master_node.floating_ip}"
  ssh_options   = "-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=${local.work}/known_hosts"
  through = var.through_floating_ip ? {
    ansible_ssh_extra_args = "-o ProxyCommand='ssh ${local.ssh_options} -W %h:%p ${local.entrance}'"
  } : {}

  # They are given to each host: those of a group would yield to ansible/group_vars.
  settings = merge({
    jupyter_port    = var.jupyter_port
    jupyter_address = var.horovod_master_node.floating_ip
  }, var.ansible_variables)

  inventory = yamlencode({
    all = {
      vars = {
        ansible_user            = var.ssh_user
        ansible_ssh_common_args = local.ssh_options
      }
      children = {
        master_nodes = { # not the name that a node may have
          hosts = { (local.master.name) = merge(local.settings, {
            ansible_host = var.through_floating_ip ? var.horovod_master_node.floating_ip : local.master.access_ip_v4
            node_address = local.master.access_ip_v4
          }) }
        }
        worker_nodes = {
          hosts = { for worker in local.workers : worker.name => merge(local.settings, local.through, {
            ansible_host = worker.access_ip_v4
            node_address = worker.access_ip_v4
          }) }
        }
      }
    }
  })
}

resource "terraform_data" "inventory" {
  input            = { directory = local.work }
  triggers_replace = [local.inventory, local.node_ids] # a new node may have an old node's address, not its host key

  provisioner "local-exec" {
    command     = "mkdir -p \"$DIRECTORY\" && printf '%s' \"$TEXT\" > \"$DIRECTORY/inventory.yaml\""
    environment = { DIRECTORY = local.work, TEXT = local.inventory }
  }

  provisioner "local-exec" {
    when        = destroy
    command     = "rm -f \"$DIRECTORY/inventory.yaml\" \"$DIRECTORY/known_hosts\"; rmdir \"$DIRECTORY\" 2> /dev/null || true"
    environment = { DIRECTORY = self.input.directory }
  }
}

resource "terraform_data" "configuration" {
  triggers_replace = [
    terraform_data.inventory.id,
    var.ansible_playbook.playbook,
    sha256(join("", [for file in local.ansible_files : filesha256("${local.ansible}/${file}")])),
  ]
  depends_on = [
    openstack_compute_floatingip_associate_v2.horovod_master,
    openstack_networking_secgroup_rule_v2.master,
    openstack_networking_secgroup_rule_v2.controller,
    openstack_networking_secgroup_rule_v2.nodes,
    openstack_networking_secgroup_rule_v2.nodes_icmp,
  ]

  provisioner "local-exec" {
    working_dir = local.ansible
    command     = "${var.ansible_playbook.command} -i '${local.work}/inventory.yaml' '${var.ansible_playbook.playbook}'"
  }
}
