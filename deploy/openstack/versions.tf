terraform {
  required_version = ">= 1.4" # terraform_data

  required_providers {
    openstack = {
      source  = "terraform-provider-openstack/openstack"
      version = ">= 1.42.0, < 3.0.0" # 3.0 has no openstack_compute_floatingip_associate_v2
    }
  }
}

provider "openstack" {
  user_name   = local.given.user_name
  password    = local.given.password
  tenant_name = local.given.tenant_name
  auth_url    = local.given.auth_url
}

locals {
  # What is empty is left to the provider, which then looks at the environment.
  given = { for name, value in merge(var.auth_data, var.openstack_provider) : name => value == "" ? null : value }
}
