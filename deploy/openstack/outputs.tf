output "master_instance_ip" {
  description = "Private address of the master."
  value       = openstack_compute_instance_v2.horovod_master.access_ip_v4
}

output "worker_instance_ips" {
  description = "Private addresses of the workers."
  value       = openstack_compute_instance_v2.horovod_workers[*].access_ip_v4
}

output "jupyter_url" {
  description = "Asks for the token, which is in `sudo docker logs horovod_master` on the master."
  value       = "http://${var.horovod_master_node.floating_ip}:${var.jupyter_port}/lab"
}

output "training_hosts" {
  description = "For horovodrun -H: one slot on every node."
  value       = join(",", [for node in concat([local.master], local.workers) : "${node.access_ip_v4}:1"])
}
