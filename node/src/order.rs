//! What a pod may ask of the agent. What is made for it is in its order, which only the controller writes: a request names an
//! interface of it; of its other fields, only the address of a NIC counts, where the order leaves it open. Pure.

use garboard_agent::tap_binding::{TapBinding, tapped};
use garboard_api::v1::VirtualMachineInstance;
use garboard_plan::{OrderedInterface, PlanError, ordered_interfaces};
use garboard_protocol::agent::{AgentRequest, InterfaceRequest};
use garboard_protocol::control::Status;
use garboard_protocol::record::RunRecord;
use garboard_protocol::text::{DecoderError, printable};
use serde::Deserialize;

/// More interfaces than any machine has.
const INTERFACES: usize = 64;
/// The longest name of an interface that is quoted, characters.
const NAME: usize = 64;

/// A request that its pod may make.
#[derive(Debug, PartialEq)]
pub(crate) enum Permitted {
    /// Something is made in the pod's network namespace.
    Work(Work),
    /// The status of the pod's machine is noted.
    Report(Box<Status>),
    /// The record of the pod's run is kept.
    Record(Box<RunRecord>),
}

/// What is made in a pod's network namespace, as the pod's order has it.
#[derive(Debug, PartialEq)]
pub(crate) enum Work {
    /// Interfaces.
    Plumb(Vec<InterfaceRequest>),
    /// Sockets of interfaces that are there.
    Sockets(Vec<InterfaceRequest>),
}

/// Why a request is not done.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// Volumes are no matter of the agent.
    #[error("a pod opens its volumes itself")]
    Volume,
    /// It makes another use of the whole connection, and comes before any other request on it.
    #[error("a connection for control connections has no other request")]
    Serve,
    /// A status of a machine that is not this pod's.
    #[error("this pod belongs to another VirtualMachineInstance")]
    OtherInstance,
    /// Its annotation is missing.
    #[error("this pod has no order")]
    Missing,
    /// Its annotation is something else.
    #[error("this pod's order could not be parsed")]
    Malformed(#[source] DecoderError),
    /// No plan could be made of it.
    #[error("this pod's order has interfaces that cannot be created")]
    Unplannable(#[from] PlanError),
    /// Too much is asked.
    #[error("{0} interfaces are more than any machine has")]
    TooMany(usize),
    /// It is not in the order.
    #[error("this pod's order has no interface `{0}` that uses a tap")]
    NotOrdered(String),
    /// Twice in one request.
    #[error("interface `{0}` is asked for twice")]
    Twice(String),
    /// It is ordered otherwise.
    #[error("this pod's order has another binding for interface `{0}`")]
    OtherBinding(String),
    /// More than the machine has vCPUs.
    #[error("interface `{interface}`: {asked} is not the number of queues of this pod's order, which is {ordered}")]
    Queues {
        /// The interface.
        interface: String,
        /// What was asked for.
        asked: u32,
        /// What the order comes to.
        ordered: u32,
    },
}

/// The part of an order that is read: later ones may have more.
#[derive(Deserialize)]
struct Order {
    vmi: VirtualMachineInstance,
}

/// Whether a pod may make a request, by its order and the UID of its instance. The agent does nothing that has not been through
/// here. A new request has to be judged here before it compiles.
///
/// # Errors
/// [`OrderError`].
pub(crate) fn permitted(request: AgentRequest, order: Option<&str>, vmi_uid: &str) -> Result<Permitted, OrderError> {
    match request {
        AgentRequest::Volume { .. } => Err(OrderError::Volume),
        AgentRequest::Serve => Err(OrderError::Serve),
        AgentRequest::Report { status } if status.uid != vmi_uid => Err(OrderError::OtherInstance),
        AgentRequest::Report { status } => Ok(Permitted::Report(status)),
        AgentRequest::Record { record } if record.uid != vmi_uid => Err(OrderError::OtherInstance),
        AgentRequest::Record { record } => Ok(Permitted::Record(record)),
        AgentRequest::Plumb { interfaces } => Ok(Permitted::Work(Work::Plumb(granted(order, &interfaces)?))),
        AgentRequest::Sockets { interfaces } => Ok(Permitted::Work(Work::Sockets(granted(order, &interfaces)?))),
    }
}

/// What is made for requests, by the order of the pod that asks.
fn granted(order: Option<&str>, requests: &[InterfaceRequest]) -> Result<Vec<InterfaceRequest>, OrderError> {
    if requests.len() > INTERFACES {
        return Err(OrderError::TooMany(requests.len()));
    }
    let order: Order = serde_json::from_str(order.ok_or(OrderError::Missing)?).map_err(malformed)?;
    let ordered = ordered_interfaces(&order.vmi)?;
    for (index, request) in requests.iter().enumerate() {
        if requests[..index].iter().any(|before| before.name == request.name) {
            return Err(OrderError::Twice(shown(&request.name)));
        }
    }
    requests.iter().map(|request| grant(&ordered, request)).collect()
}

fn grant(ordered: &[OrderedInterface], request: &InterfaceRequest) -> Result<InterfaceRequest, OrderError> {
    let found = ordered.iter().find(|one| one.name == request.name);
    let found = found.and_then(|one| Some((one, tapped(&one.binding)?)));
    let (ordered, TapBinding { tap, binding }) = found.ok_or_else(|| OrderError::NotOrdered(shown(&request.name)))?;
    if std::mem::discriminant(&binding) != std::mem::discriminant(&request.binding) {
        return Err(OrderError::OtherBinding(shown(&request.name)));
    }
    if request.queues != ordered.queues {
        let interface = shown(&request.name);
        return Err(OrderError::Queues { interface, asked: request.queues, ordered: ordered.queues });
    }
    let mac = ordered.mac.clone().unwrap_or_else(|| request.mac.clone());
    Ok(InterfaceRequest { name: ordered.name.clone(), tap, mac, queues: ordered.queues, binding })
}

/// A pod's owner may have written it.
fn malformed(error: serde_json::Error) -> OrderError {
    OrderError::Malformed(error.into())
}

/// A name that the caller sent.
fn shown(name: &str) -> String {
    printable(name, NAME)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use garboard_protocol::agent::BindingRequest;
    use garboard_protocol::testing::{INSTANCE, running};

    /// An order with one interface, `default`, of that binding.
    pub(crate) fn order(binding: &str) -> String {
        let spec = serde_json::json!({
            "domain": {"memory": {"guest": "64Mi"}, "cpu": {"cores": 2}, "devices": {"networkInterfaceMultiqueue": true,
                "interfaces": [{"name": "default", binding: {}, "ports": [{"port": 22}]}]}},
            "networks": [{"name": "default", "pod": {}}]});
        let vmi = serde_json::json!({"metadata": {"name": "vm"}, "spec": spec});
        serde_json::json!({"version": 1, "vmi": vmi, "volumes": {}, "emulation": false, "later": true}).to_string()
    }

    fn request() -> InterfaceRequest {
        let binding = BindingRequest::Masquerade { ipv4: "192.0.2.0/24".into(), ipv6: "x".into(), ports: Vec::new() };
        let (name, tap, mac) = ("default".into(), "mine".into(), "02:00:00:aa:bb:01".into());
        InterfaceRequest { name, tap, mac, queues: 2, binding }
    }

    #[test]
    fn what_is_made_is_what_the_order_has() {
        let granted = granted(Some(&order("masquerade")), &[request()]).unwrap().remove(0);
        assert_eq!((granted.tap.as_str(), granted.queues, granted.mac.as_str()), ("tap0", 2, "02:00:00:aa:bb:01"));
        let ports = vec![("TCP".to_owned(), 22)];
        let (ipv4, ipv6) = ("10.0.2.0/24".into(), "fd10:0:2::/120".into());
        assert_eq!(granted.binding, BindingRequest::Masquerade { ipv4, ipv6, ports });
        let addressed = order("masquerade").replace("\"ports\"", "\"macAddress\":\"02:00:00:00:00:07\",\"ports\"");
        let granted = super::granted(Some(&addressed), &[request()]).unwrap().remove(0);
        assert_eq!(granted.mac, "02:00:00:00:00:07");
    }

    #[test]
    fn each_request_is_judged_by_the_pod_that_makes_it() {
        let order = order("masquerade");
        let judged = |request| permitted(request, Some(&order), INSTANCE);
        let interfaces = || vec![request()];
        let made = granted(Some(&order), &interfaces()).unwrap();
        let plumb = judged(AgentRequest::Plumb { interfaces: interfaces() }).unwrap();
        assert_eq!(plumb, Permitted::Work(Work::Plumb(made.clone())));
        let sockets = judged(AgentRequest::Sockets { interfaces: interfaces() }).unwrap();
        assert_eq!(sockets, Permitted::Work(Work::Sockets(made)));
        let status = Box::new(running(1));
        let report = judged(AgentRequest::Report { status: status.clone() }).unwrap();
        assert_eq!(report, Permitted::Report(status.clone()));
        let foreign = permitted(AgentRequest::Report { status }, Some(&order), "another");
        assert!(matches!(foreign, Err(OrderError::OtherInstance)), "{foreign:?}");
        let record = Box::new(RunRecord { uid: INSTANCE.to_owned(), ..RunRecord::default() });
        let kept = judged(AgentRequest::Record { record: record.clone() }).unwrap();
        assert_eq!(kept, Permitted::Record(record.clone()));
        let foreign = permitted(AgentRequest::Record { record }, Some(&order), "another");
        assert!(matches!(foreign, Err(OrderError::OtherInstance)), "{foreign:?}");
        assert!(matches!(judged(AgentRequest::Volume { name: "root".into() }), Err(OrderError::Volume)));
        assert!(matches!(judged(AgentRequest::Serve), Err(OrderError::Serve)));
        let without = permitted(AgentRequest::Plumb { interfaces: interfaces() }, None, INSTANCE);
        assert!(matches!(without, Err(OrderError::Missing)), "{without:?}");
    }

    #[test]
    fn what_it_does_not_say_is_not_made() {
        let order = order("masquerade");
        let other = |change: &dyn Fn(&mut InterfaceRequest)| {
            let mut request = request();
            change(&mut request);
            granted(Some(&order), &[request]).unwrap_err()
        };
        assert!(matches!(other(&|one| one.binding = BindingRequest::Bridge), OrderError::OtherBinding(_)));
        assert!(matches!(other(&|one| one.name = "lan".into()), OrderError::NotOrdered(_)));
        assert!(matches!(other(&|one| one.queues = 3), OrderError::Queues { asked: 3, ordered: 2, .. }));
        let twice = granted(Some(&order), &[request(), request()]).unwrap_err();
        assert!(matches!(twice, OrderError::Twice(_)), "{twice}");
        let many = granted(Some(&order), &vec![request(); 65]).unwrap_err();
        assert!(matches!(many, OrderError::TooMany(65)), "{many}");
        assert!(matches!(granted(None, &[request()]), Err(OrderError::Missing)));
        assert!(matches!(granted(Some("{}"), &[request()]), Err(OrderError::Malformed(_))));
    }
}
