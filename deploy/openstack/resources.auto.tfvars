# What is to be made. Everything else has a default: see variables.tf.
openstack_provider = ({
  tenant_name = "" # the project
  auth_url    = "" # https://cloud.example.org:5000/v3
})

horovod_master_node = ({
  name        = "horovod-master"
  flavor_name = "m2.medium"
  image_id    = "" # Ubuntu or Debian
  key_pair    = ""
  floating_ip = ""
})

horovod_worker_node = ({
  name        = "horovod-worker"
  count       = 2
  flavor_name = "m2.medium"
  image_id    = ""
  key_pair    = ""
})

horovod_network = ({
  network_subnet_range = "192.168.0.0/16"
})
