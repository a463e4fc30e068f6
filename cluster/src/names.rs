//! Names of objects of an installation that controller and node agent both use, which are those of `deploy/base`, and the names
//! under which both write.

/// The Service of the controllers: webhooks, the subresource API, and connections of node agents.
pub const CONTROLLER_SERVICE: &str = "garboard-webhook";
/// The name of its port for node agents.
pub const NODES_PORT_NAME: &str = "nodes";
/// The ConfigMap with the certificates of the authorities that sign what controllers show; the leader writes it.
pub const AUTHORITIES: &str = "garboard-authorities";
/// Its key: PEM.
pub const AUTHORITIES_KEY: &str = "ca.crt";
/// The service account of node agents.
pub const NODE_ACCOUNT: &str = "garboard-node";

/// The field managers, in `managedFields`: server-side apply keeps the fields of each apart. This one is the controller's, also
/// as the reporter of its events.
pub const CONTROLLER_MANAGER: &str = "garboard-controller";
/// Of labels and conditions of supervisors that are replaced, so that they go again without anything else.
pub const UPGRADE_MANAGER: &str = "garboard-controller-upgrade";
/// Of the condition of an object that this release cannot read, which goes again in the same way.
pub const UNREADABLE_MANAGER: &str = "garboard-controller-unreadable";
/// The node agent's.
pub const NODE_MANAGER: &str = "garboard-node";
