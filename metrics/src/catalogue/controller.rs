//! What a controller says of machines, instances, itself and what it serves.

use super::{Kind, Metric, metrics};

metrics! {
    VM_INFO = Gauge "kubevirt_vm_info"
        ["name", "namespace", "os", "workload", "flavor", "machine_type", "instance_type", "preference", "status", "status_group"]
        "A VirtualMachine; always 1.";
    VM_STARTING_SINCE = Counter "kubevirt_vm_starting_status_last_transition_timestamp_seconds" ["name", "namespace"]
        "When the machine began to start, in seconds since 1970; 0 while it does not.";
    VM_RUNNING_SINCE = Counter "kubevirt_vm_running_status_last_transition_timestamp_seconds" ["name", "namespace"]
        "When the machine began to run, in seconds since 1970; 0 while it does not.";
    VM_MIGRATING_SINCE = Counter "kubevirt_vm_migrating_status_last_transition_timestamp_seconds" ["name", "namespace"]
        "When the machine began to migrate, in seconds since 1970; 0 while it does not.";
    VM_NON_RUNNING_SINCE = Counter "kubevirt_vm_non_running_status_last_transition_timestamp_seconds" ["name", "namespace"]
        "When the machine was paused or stopped, in seconds since 1970; 0 while it is not.";
    VM_ERROR_SINCE = Counter "kubevirt_vm_error_status_last_transition_timestamp_seconds" ["name", "namespace"]
        "When the machine got a status that is an error, in seconds since 1970; 0 while it has none.";
    VM_CREATE_DATE = Gauge "kubevirt_vm_create_date_timestamp_seconds" ["name", "namespace"]
        "When the VirtualMachine was created, in seconds since 1970.";

    VMI_INFO = Gauge "kubevirt_vmi_info"
        [
            "node", "namespace", "name", "phase", "os", "workload", "flavor", "instance_type", "preference",
            "guest_os_kernel_release", "guest_os_machine", "guest_os_arch", "guest_os_name", "guest_os_version_id",
            "evictable", "outdated", "vmi_pod",
        ]
        "A VirtualMachineInstance; always 1.";
    VMI_NON_EVICTABLE = Gauge "kubevirt_vmi_non_evictable" ["node", "namespace", "name"]
        "1 if the machine is to be moved by live migration when its node is drained, and cannot be; else 0.";
    VMI_STATUS_ADDRESSES = Gauge "kubevirt_vmi_status_addresses"
        ["node", "namespace", "name", "vnic_name", "interface_name", "address", "type"]
        "An interface of an instance with its address; always 1.";
    VMI_LAUNCHER_MEMORY_OVERHEAD_BYTES = Gauge "kubevirt_vmi_launcher_memory_overhead_bytes" ["namespace", "name"]
        "Memory that the launcher pod asks for beside the guest's.";
    VMI_NUMBER_OF_OUTDATED = Gauge "kubevirt_vmi_number_of_outdated" []
        "Instances whose launcher is not of the installed version.";
    VMI_PHASE_TRANSITION_TIME = Histogram "kubevirt_vmi_phase_transition_time_seconds" ["phase", "last_phase"]
        "How long instances were in a phase before the next one.";
    VMI_PHASE_TRANSITION_TIME_FROM_CREATION = Histogram "kubevirt_vmi_phase_transition_time_from_creation_seconds" ["phase"]
        "How long after their creation instances came to a phase.";
    VMI_PHASE_TRANSITION_TIME_FROM_DELETION = Histogram "kubevirt_vmi_phase_transition_time_from_deletion_seconds" ["phase"]
        "How long after their deletion was asked for instances came to their last phase.";

    CONTROLLER_LEADING = Gauge "kubevirt_virt_controller_leading_status" []
        "1 if this replica is the leader.";
    CONTROLLER_READY = Gauge "kubevirt_virt_controller_ready_status" []
        "1 if this replica serves webhooks and subresources, and can become the leader.";
    EMULATION_ENABLED = Gauge "kubevirt_configuration_emulation_enabled" []
        "1 if machines may run without KVM.";
    WORKQUEUE_WORK_SECONDS = Histogram "kubevirt_workqueue_work_duration_seconds" ["name"]
        "How long reconciliations took, by the kind of the object.";
    WORKQUEUE_DEPTH = Gauge "kubevirt_workqueue_depth" ["name"]
        "Objects of a kind that a change has put among those that wait to be reconciled.";
    WORKQUEUE_ADDS = Counter "kubevirt_workqueue_adds_total" ["name"]
        "How often an object was put among those that wait, because of a change or because its time had come.";
    WORKQUEUE_QUEUE_SECONDS = Histogram "kubevirt_workqueue_queue_duration_seconds" ["name"]
        "How long objects waited that a change had put there.";
    WORKQUEUE_RETRIES = Counter "kubevirt_workqueue_retries_total" ["name"]
        "How often a reconciliation failed, and its object was put back.";
    WORKQUEUE_UNFINISHED_SECONDS = Gauge "kubevirt_workqueue_unfinished_work_seconds" ["name"]
        "How long the reconciliations under way have taken so far, added up, in seconds.";
    WORKQUEUE_LONGEST_SECONDS = Gauge "kubevirt_workqueue_longest_running_processor_seconds" ["name"]
        "How long the longest reconciliation under way has taken so far, in seconds.";
    CONSOLE_CONNECTIONS = Gauge "kubevirt_console_active_connections" ["namespace", "vmi"]
        "Serial consoles that are open through this replica.";
    VNC_CONNECTIONS = Gauge "kubevirt_vnc_active_connections" ["namespace", "vmi"]
        "Screens that are open through this replica.";
    USBREDIR_CONNECTIONS = Gauge "kubevirt_usbredir_active_connections" ["namespace", "vmi"]
        "USB redirections that are open through this replica.";
    PORTFORWARD_TUNNELS = Gauge "kubevirt_portforward_active_tunnels" ["namespace", "vmi"]
        "Ports of guests that are forwarded through this replica.";
    LAST_API_CONNECTION = Gauge "kubevirt_vmi_last_api_connection_timestamp_seconds" ["namespace", "vmi"]
        "When a stream to the machine was last opened through this replica, in seconds since 1970.";

    QMP_CONNECTIONS = Gauge "garboard_qmp_active_connections" ["namespace", "vmi"]
        "Sessions of QMP that are open through this replica.";
    CONNECTED_NODES = Gauge "garboard_connected_nodes" []
        "Node agents that are connected to this replica.";
    CERTIFICATE_EXPIRES = Gauge "garboard_certificate_expiration_timestamp_seconds" []
        "When the certificate that this replica shows ends, in seconds since 1970; it is renewed before.";
    ADMISSION_SECONDS = Histogram "garboard_admission_duration_seconds" ["webhook"]
        "How long the webhooks took to judge a request.";
    SCRAPES_REFUSED = Counter "garboard_metrics_requests_refused_total" ["reason"]
        "Requests for metrics that were refused.";
}
