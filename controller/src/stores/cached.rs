//! One object of a store.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use garboard_api::metadata::annotation;
use garboard_protocol::text::printable;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::{Kind, sieve};

/// The most characters of an explanation of what cannot be read.
const LONGEST: usize = 300;

/// An object as the API server has it, without what no decision needs: as text, whatever it contains.
pub struct Cached<K> {
    /// Names, resource version, controller, and of annotations the one of its trace.
    metadata: ObjectMeta,
    /// Everything but the resource version.
    text: Arc<str>,
    kind: PhantomData<fn() -> K>,
}

/// Which object of its kind: [`NamespacedName`](crate::unread::NamespacedName) for those that keep it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectKey {
    /// Of a namespace and a name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// An object that this release cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {kind} cannot be read: {problem}")]
pub struct Unreadable {
    /// Its kind.
    pub kind: &'static str,
    /// What is wrong, and where.
    pub problem: String,
}

impl<K: Kind> Cached<K> {
    /// Of what was [read](sieve::read).
    fn of(mut object: Map<String, Value>) -> Self {
        K::trim(&mut object);
        let mut metadata = ObjectMeta::default();
        if let Some(Value::Object(written)) = object.get_mut("metadata") {
            let resource_version = written.remove("resourceVersion");
            let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
            metadata.name = text(written.get("name"));
            metadata.namespace = text(written.get("namespace"));
            metadata.uid = text(written.get("uid"));
            metadata.resource_version = text(resource_version.as_ref());
            metadata.owner_references = written.get("ownerReferences").and_then(controller);
            let trace = text(written.get("annotations").and_then(|all| all.get(annotation::TRACE)));
            metadata.annotations = trace.map(|trace| BTreeMap::from([(annotation::TRACE.to_owned(), trace)]));
        }
        let text = serde_json::to_string(&object).unwrap_or_default().into();
        Self { metadata, text, kind: PhantomData }
    }

    /// The object.
    ///
    /// # Errors
    /// [`Unreadable`]: it was stored by another release, or while no webhook judged it.
    pub fn read(&self) -> Result<K::Object, Unreadable> {
        let mut object: K::Object = serde_json::from_str(&self.text).map_err(|error| self.unreadable(&error))?;
        object.meta_mut().resource_version.clone_from(&self.metadata.resource_version);
        Ok(object)
    }

    /// A part of the object, as a type that has only that: cheaper, and other parts may be unreadable. It has no resource version.
    ///
    /// # Errors
    /// [`Unreadable`], where the part is.
    pub fn read_part<T: DeserializeOwned>(&self) -> Result<T, Unreadable> {
        serde_json::from_str(&self.text).map_err(|error| self.unreadable(&error))
    }

    /// The object, or as much of one that cannot be read as [its removal](Self::remnant) needs, if it is being deleted.
    ///
    /// # Errors
    /// [`Unreadable`], of one that stays.
    pub fn read_to_remove(&self) -> Result<K::Object, Unreadable> {
        self.read().or_else(|problem| match self.remnant() {
            Ok(remnant) if remnant.meta().deletion_timestamp.is_some() => Ok(remnant),
            Ok(_) | Err(_) => Err(problem),
        })
    }

    /// As much of an object that cannot be read as can be: metadata, and of the rest what the kind calls its
    /// [remnant](Kind::remnant). Enough to end and to remove what belongs to it, and itself.
    ///
    /// # Errors
    /// [`Unreadable`], where not even that is.
    pub fn remnant(&self) -> Result<K::Object, Unreadable> {
        let raw = self.raw();
        let mut remnant = K::remnant(&raw);
        remnant["metadata"] = raw["metadata"].clone();
        let mut object: K::Object = serde_json::from_value(remnant).map_err(|error| self.unreadable(&error))?;
        object.meta_mut().resource_version.clone_from(&self.metadata.resource_version);
        Ok(object)
    }

    /// As it is stored, for the report of one that cannot be read.
    #[must_use]
    pub fn raw(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// Whether a text occurs in it, as a key or a value: much cheaper than reading it.
    #[must_use]
    pub fn mentions(&self, text: &str) -> bool {
        self.text.contains(text)
    }

    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        let ObjectMeta { namespace, name, .. } = &self.metadata;
        ObjectKey { namespace: namespace.clone().unwrap_or_default(), name: name.clone().unwrap_or_default() }
    }

    /// Who controls it.
    #[must_use]
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.metadata.owner_references.as_ref()?.first()
    }

    /// Whether two versions differ in nothing that counts.
    #[must_use]
    pub fn is_the_same(&self, other: &Self) -> bool {
        self.text == other.text
    }

    fn unreadable(&self, error: &serde_json::Error) -> Unreadable {
        let problem = K::problem(&self.raw()).unwrap_or_else(|| error.to_string());
        Unreadable { kind: K::KIND, problem: printable(&problem, LONGEST) }
    }
}

fn controller(owners: &Value) -> Option<Vec<OwnerReference>> {
    let owners: Vec<OwnerReference> = serde_json::from_value(owners.clone()).ok()?;
    let mut found = owners.into_iter().filter(|owner| owner.controller == Some(true));
    found.next().map(|owner| vec![owner])
}

impl<K> Clone for Cached<K> {
    fn clone(&self) -> Self {
        Self { metadata: self.metadata.clone(), text: self.text.clone(), kind: PhantomData }
    }
}

/// What is written in an object is not for logs.
impl<K: Kind> fmt::Debug for Cached<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectKey { namespace, name } = self.key();
        write!(formatter, "{} {namespace}/{name}", K::KIND)
    }
}

impl<'de, K: Kind> Deserialize<'de> for Cached<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        sieve::read::<K, D>(deserializer).map(Self::of)
    }
}

impl<K: Kind> Resource for Cached<K> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        K::KIND.into()
    }

    fn group(_: &()) -> Cow<'_, str> {
        K::GROUP.into()
    }

    fn version(_: &()) -> Cow<'_, str> {
        K::VERSION.into()
    }

    fn plural(_: &()) -> Cow<'_, str> {
        K::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
