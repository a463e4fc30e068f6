//! Names of objects of an installation that controller and node agent both use. They are those of `deploy/base`.

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
