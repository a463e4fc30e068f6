//! What a node agent says of its machines and of itself.

use super::{Kind, Metric, metrics};

metrics! {
    INFO = Gauge "kubevirt_info" ["goversion", "kubeversion"] "Version of this program; nothing of it is written in Go.";
    REST_CLIENT_REQUESTS = Counter "kubevirt_rest_client_requests_total" ["code", "method", "host", "resource", "verb"]
        "Requests of this program to the API server, attempt by attempt; the code of one that was not answered is `<error>`.";

    VMI_CPU_USAGE_SECONDS = Counter "kubevirt_vmi_cpu_usage_seconds_total" ["node", "namespace", "name"]
        "Processor time of the machine's QEMU, vCPUs and all else, in seconds.";
    VMI_CPU_USER_USAGE_SECONDS = Counter "kubevirt_vmi_cpu_user_usage_seconds_total" ["node", "namespace", "name"]
        "Processor time of the machine's QEMU in user mode, the guest's among it, in seconds.";
    VMI_CPU_SYSTEM_USAGE_SECONDS = Counter "kubevirt_vmi_cpu_system_usage_seconds_total" ["node", "namespace", "name"]
        "Processor time of the machine's QEMU in the node's kernel, in seconds.";
    VMI_VCPU_SECONDS = Counter "kubevirt_vmi_vcpu_seconds_total" ["node", "namespace", "name", "id", "state"]
        "Processor time of a vCPU, in seconds; its state is running, or blocked while the machine is paused.";
    VMI_VCPU_WAIT_SECONDS = Counter "kubevirt_vmi_vcpu_wait_seconds_total" ["node", "namespace", "name", "id"]
        "Time in which a vCPU's thread waited for I/O, in seconds; 0 unless the node's kernel counts it (kernel.task_delayacct).";
    VMI_VCPU_DELAY_SECONDS = Counter "kubevirt_vmi_vcpu_delay_seconds_total" ["node", "namespace", "name", "id"]
        "Time in which a vCPU was ready to run and had no processor, in seconds.";
    VMI_NODE_CPU_AFFINITY = Gauge "kubevirt_vmi_node_cpu_affinity" ["node", "namespace", "name"]
        "Processors that the machine's vCPUs may run on, added up over its vCPUs.";

    VMI_MEMORY_RESIDENT_BYTES = Gauge "kubevirt_vmi_memory_resident_bytes" ["node", "namespace", "name"]
        "Resident memory of the machine's QEMU.";
    VMI_MEMORY_DOMAIN_BYTES = Gauge "kubevirt_vmi_memory_domain_bytes" ["node", "namespace", "name"]
        "Memory that the guest was started with.";
    VMI_MEMORY_AVAILABLE_BYTES = Gauge "kubevirt_vmi_memory_available_bytes" ["node", "namespace", "name"]
        "Memory that the guest's kernel manages, by its balloon driver.";
    VMI_MEMORY_UNUSED_BYTES = Gauge "kubevirt_vmi_memory_unused_bytes" ["node", "namespace", "name"]
        "Memory that the guest does not use at all, by its balloon driver.";
    VMI_MEMORY_USABLE_BYTES = Gauge "kubevirt_vmi_memory_usable_bytes" ["node", "namespace", "name"]
        "Memory that the guest could give to new programs without swapping, by its balloon driver.";
    VMI_MEMORY_CACHED_BYTES = Gauge "kubevirt_vmi_memory_cached_bytes" ["node", "namespace", "name"]
        "Memory of the guest's caches of files, by its balloon driver.";
    VMI_MEMORY_ACTUAL_BALLOON_BYTES = Gauge "kubevirt_vmi_memory_actual_balloon_bytes" ["node", "namespace", "name"]
        "Memory that the balloon leaves to the guest.";
    VMI_MEMORY_SWAP_IN_TRAFFIC_BYTES = Gauge "kubevirt_vmi_memory_swap_in_traffic_bytes" ["node", "namespace", "name"]
        "Bytes that the guest has read from its swap space, by its balloon driver.";
    VMI_MEMORY_SWAP_OUT_TRAFFIC_BYTES = Gauge "kubevirt_vmi_memory_swap_out_traffic_bytes" ["node", "namespace", "name"]
        "Bytes that the guest has written to its swap space, by its balloon driver.";
    VMI_MEMORY_PGMAJFAULT = Counter "kubevirt_vmi_memory_pgmajfault_total" ["node", "namespace", "name"]
        "Page faults of the guest that read a disk, by its balloon driver.";
    VMI_MEMORY_PGMINFAULT = Counter "kubevirt_vmi_memory_pgminfault_total" ["node", "namespace", "name"]
        "Page faults of the guest that read no disk, by its balloon driver.";

    VMI_NETWORK_TRAFFIC_BYTES = Counter "kubevirt_vmi_network_traffic_bytes_total" ["node", "namespace", "name", "interface", "type"]
        "Bytes that an interface has received (type rx) and sent (tx); deprecated by KubeVirt.";
    VMI_NETWORK_RECEIVE_BYTES = Counter "kubevirt_vmi_network_receive_bytes_total" ["node", "namespace", "name", "interface"]
        "Bytes that an interface of the guest has received.";
    VMI_NETWORK_TRANSMIT_BYTES = Counter "kubevirt_vmi_network_transmit_bytes_total" ["node", "namespace", "name", "interface"]
        "Bytes that an interface of the guest has sent.";
    VMI_NETWORK_RECEIVE_PACKETS = Counter "kubevirt_vmi_network_receive_packets_total" ["node", "namespace", "name", "interface"]
        "Packets that an interface of the guest has received.";
    VMI_NETWORK_TRANSMIT_PACKETS = Counter "kubevirt_vmi_network_transmit_packets_total" ["node", "namespace", "name", "interface"]
        "Packets that an interface of the guest has sent.";
    VMI_NETWORK_RECEIVE_ERRORS = Counter "kubevirt_vmi_network_receive_errors_total" ["node", "namespace", "name", "interface"]
        "Packets to an interface of the guest that had an error.";
    VMI_NETWORK_TRANSMIT_ERRORS = Counter "kubevirt_vmi_network_transmit_errors_total" ["node", "namespace", "name", "interface"]
        "Packets of an interface of the guest that had an error.";
    VMI_NETWORK_RECEIVE_PACKETS_DROPPED = Counter "kubevirt_vmi_network_receive_packets_dropped_total"
        ["node", "namespace", "name", "interface"]
        "Packets to an interface of the guest that were dropped, as of one that does not read.";
    VMI_NETWORK_TRANSMIT_PACKETS_DROPPED = Counter "kubevirt_vmi_network_transmit_packets_dropped_total"
        ["node", "namespace", "name", "interface"]
        "Packets of an interface of the guest that were dropped.";

    VMI_STORAGE_IOPS_READ = Counter "kubevirt_vmi_storage_iops_read_total" ["node", "namespace", "name", "drive"]
        "Read operations of a disk.";
    VMI_STORAGE_IOPS_WRITE = Counter "kubevirt_vmi_storage_iops_write_total" ["node", "namespace", "name", "drive"]
        "Write operations of a disk.";
    VMI_STORAGE_READ_TRAFFIC_BYTES = Counter "kubevirt_vmi_storage_read_traffic_bytes_total" ["node", "namespace", "name", "drive"]
        "Bytes that were read of a disk.";
    VMI_STORAGE_WRITE_TRAFFIC_BYTES = Counter "kubevirt_vmi_storage_write_traffic_bytes_total" ["node", "namespace", "name", "drive"]
        "Bytes that were written to a disk.";
    VMI_STORAGE_READ_TIMES_SECONDS = Counter "kubevirt_vmi_storage_read_times_seconds_total" ["node", "namespace", "name", "drive"]
        "Time that read operations of a disk took, added up, in seconds.";
    VMI_STORAGE_WRITE_TIMES_SECONDS = Counter "kubevirt_vmi_storage_write_times_seconds_total" ["node", "namespace", "name", "drive"]
        "Time that write operations of a disk took, added up, in seconds.";
    VMI_STORAGE_FLUSH_REQUESTS = Counter "kubevirt_vmi_storage_flush_requests_total" ["node", "namespace", "name", "drive"]
        "Flushes of a disk.";
    VMI_STORAGE_FLUSH_TIMES_SECONDS = Counter "kubevirt_vmi_storage_flush_times_seconds_total" ["node", "namespace", "name", "drive"]
        "Time that flushes of a disk took, added up, in seconds.";

    VMI_FILESYSTEM_CAPACITY_BYTES = Gauge "kubevirt_vmi_filesystem_capacity_bytes"
        ["node", "namespace", "name", "disk_name", "mount_point", "file_system_type"]
        "Size of a file system of the guest, by its agent.";
    VMI_FILESYSTEM_USED_BYTES = Gauge "kubevirt_vmi_filesystem_used_bytes"
        ["node", "namespace", "name", "disk_name", "mount_point", "file_system_type"]
        "Bytes in use in a file system of the guest, by its agent.";

    NODE_MACHINES = Gauge "garboard_node_machines" ["node"]
        "Launcher pods of the node with a QEMU.";
    NODE_UNANSWERED = Gauge "garboard_node_scrape_machines_unanswered" ["node"]
        "Machines whose launcher did not answer this scrape in time; what the node's kernel counts of them is there.";
    NODE_LEFT_OUT = Gauge "garboard_node_scrape_machines_left_out" ["node"]
        "Machines of which this scrape has only a part, because all of them together would be too long.";
    NODE_NAMES_LEFT_OUT = Gauge "garboard_node_scrape_names_left_out" ["node"]
        "Disks, interfaces, vCPUs and file systems that this scrape leaves out: more than a machine may name, or none of its instance.";
    NODE_SCRAPE_SECONDS = Gauge "garboard_node_scrape_duration_seconds" ["node"]
        "How long this scrape took on the node, in seconds.";
}
