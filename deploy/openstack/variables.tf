# The first five are those of auth_data.auto.tfvars and resources.auto.tfvars.

variable "auth_data" {
  description = "User name and password of the cloud; empty: from the environment."
  sensitive   = true
  type = object({
    user_name = string
    password  = string
  })
}

variable "openstack_provider" {
  description = "Project and address of the cloud."
  type = object({
    tenant_name = string
    auth_url    = string
  })
}

variable "horovod_master_node" {
  description = "The node with Jupyter, from which training is started. Its floating IP has to exist already."
  type = object({
    name        = string
    flavor_name = string
    image_id    = string
    key_pair    = string
    floating_ip = string
  })
}

variable "horovod_worker_node" {
  description = "The other nodes: NAME-1, NAME-2, ..."
  type = object({
    name        = string
    count       = number
    flavor_name = string
    image_id    = string
    key_pair    = string
  })
  validation {
    condition     = var.horovod_worker_node.count >= 0 && floor(var.horovod_worker_node.count) == var.horovod_worker_node.count
    error_message = "The number of workers (horovod_worker_node.count) has to be 0, 1, 2, ..."
  }
}

variable "horovod_network" {
  description = "Range of the nodes' private addresses, and the network's name where the project has several."
  type = object({
    network_subnet_range = string
    name                 = optional(string)
  })
  validation {
    condition     = can(cidrhost(var.horovod_network.network_subnet_range, 0))
    error_message = "horovod_network.network_subnet_range has to be a range like 192.168.0.0/16."
  }
}

variable "admin_range" {
  description = "Who may reach ssh and Jupyter of the master. Narrow it to where you are: 203.0.113.7/32."
  type        = string
  default     = "0.0.0.0/0"
  validation {
    condition     = can(cidrhost(var.admin_range, 0))
    error_message = "admin_range has to be a range like 203.0.113.7/32."
  }
}

variable "jupyter_port" {
  description = "Of Jupyter Lab on the master."
  type        = number
  default     = 8888
}

variable "ssh_user" {
  description = "The image's user, who may use sudo: ubuntu, debian, root, ..."
  type        = string
  default     = "ubuntu"
}

variable "through_floating_ip" {
  description = "Reach the master at its floating IP, and the workers through the master: for a controller outside of the cloud."
  type        = bool
  default     = false
}

variable "ansible_variables" {
  description = "Settings of ansible/group_vars/all.yaml to be changed, like { horovod_image = \"...\", share_kind = \"path\" }."
  type        = any
  default     = {}
}

variable "ansible_playbook" {
  description = "How ansible-playbook is called, and the playbook that sets the nodes up."
  type = object({
    command  = optional(string, "ansible-playbook")
    playbook = optional(string, "site.yaml")
  })
  default = {}
}
