//! What the page is given that is not the API server's: who the user is, and the diagnosis of a machine (`why`), by the rules of
//! `kubectl garboard why`. Both ask with the user's own token, so that neither shows what the user may not see.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use garboard_kubectl::{Failure, Look, Question, bounded};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::credentials::Token;
use crate::head;
use crate::refusal::Refusal;
use crate::upstream::{ApiServer, whole};

/// Who asks, as the API server sees it.
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
/// The largest answer that is read whole, bytes: a list of a few hundred nodes.
const LONGEST_ANSWER: usize = 8 << 20;
/// The most that all answers of a diagnosis have together, MiB: a machine's author may name many objects, each as large as objects can be,
/// and the pod has memory for two diagnoses.
const MOST_TOGETHER: usize = 24;
/// How long a diagnosis may take, with all its questions. What was not answered by then is noted as not seen; without the machine itself
/// there is none.
pub(crate) const DIAGNOSED_WITHIN: Duration = Duration::from_secs(60);
/// The namespace of a user that is no service account.
const USUAL_NAMESPACE: &str = "default";

/// Who the user is, and in which namespace to look who may not look everywhere. This is how a token is tried when its user signs in.
///
/// # Errors
/// [`Refusal::Unauthorized`], or the API server cannot be asked.
pub(crate) async fn about(api: &ApiServer, token: &Token) -> Result<Value, Refusal> {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let request = head::exchange(Method::POST, REVIEWS, token, Bytes::from(review.to_string()))?;
    let answer = api.send(request).await?;
    let code = answer.status();
    let answer: Value = serde_json::from_slice(&whole(answer, LONGEST_ANSWER).await?).unwrap_or_default();
    if code == StatusCode::UNAUTHORIZED {
        return Err(Refusal::Unauthorized(text_of(&answer)));
    }
    // A cluster may let its users not even ask who they are.
    if !code.is_success() && code != StatusCode::FORBIDDEN {
        return Err(Refusal::Unreachable(format!("it answered {code}: {}", text_of(&answer))));
    }
    let user = answer["status"]["userInfo"]["username"].as_str();
    Ok(json!({
        "version": garboard_kubectl::VERSION,
        "user": user,
        "context": null,
        "namespace": namespace_of(user),
    }))
}

/// That of a service account is its own. Pure.
fn namespace_of(user: Option<&str>) -> &str {
    let account = user.and_then(|user| user.strip_prefix("system:serviceaccount:"));
    account.and_then(|account| account.split_once(':')).map_or(USUAL_NAMESPACE, |(namespace, _)| namespace)
}

/// The message of a `Status`, bounded. Pure.
fn text_of(status: &Value) -> String {
    bounded(status["message"].as_str().unwrap_or("without a message"))
}

/// A cluster as the user of a token sees it. It is for threads of their own: each question waits for its answer.
pub(crate) struct Looking {
    /// The runtime that asks.
    pub(crate) runtime: Handle,
    /// Whom.
    pub(crate) api: Arc<ApiServer>,
    /// As whom.
    pub(crate) token: Token,
    /// The namespace of the machine.
    pub(crate) namespace: String,
    /// The namespace of Garboard.
    pub(crate) garboard: Arc<str>,
    /// How many questions are asked at once, of all diagnoses together.
    pub(crate) questions: Arc<Semaphore>,
    /// Until when: usually [`DIAGNOSED_WITHIN`] after its begin.
    pub(crate) until: Instant,
    /// Bytes of its answers so far.
    pub(crate) read: AtomicUsize,
}

impl Looking {
    /// What a path has: the objects of a list, an object, or nothing.
    async fn get(&self, path: &str) -> Result<Vec<Value>, Failure> {
        let late = |_| Err(Failure::NoAnswer(format!("a diagnosis has {} s", DIAGNOSED_WITHIN.as_secs())));
        timeout_at(self.until, self.answered(path)).await.unwrap_or_else(late)
    }

    async fn answered(&self, path: &str) -> Result<Vec<Value>, Failure> {
        // A semaphore that is never closed.
        let _turn = self.questions.acquire().await;
        let failed = |refusal: Refusal| Failure::Other(refusal.to_string());
        let request = head::exchange(Method::GET, path, &self.token, Bytes::new()).map_err(failed)?;
        let answer = self.api.send(request).await.map_err(failed)?;
        let code = answer.status();
        let body = whole(answer, LONGEST_ANSWER).await.map_err(failed)?;
        count(&self.read, body.len())?;
        let not_json =
            |error: serde_json::Error| Failure::Other(format!("the API server did not answer in JSON: {error}"));
        match code {
            // The object, or its kind, is not there.
            StatusCode::NOT_FOUND => Ok(Vec::new()),
            code if code.is_success() => serde_json::from_slice(&body).map(objects).map_err(not_json),
            code => Err(failure(code, &serde_json::from_slice(&body).unwrap_or_default())),
        }
    }
}

impl Look for Looking {
    fn look(&self, question: Question<'_>) -> Result<Vec<Value>, Failure> {
        let mut found = Vec::new();
        for path in question.paths(&self.namespace, &self.garboard) {
            found.extend(self.runtime.block_on(self.get(&path))?);
        }
        Ok(found)
    }

    fn looked_at(&self) -> String {
        self.namespace.clone()
    }
}

/// Counts an answer of so many bytes.
fn count(read: &AtomicUsize, bytes: usize) -> Result<(), Failure> {
    let together = read.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
    if together <= MOST_TOGETHER << 20 {
        Ok(())
    } else {
        Err(Failure::Other(format!("what is asked about the machine has more than {MOST_TOGETHER} MiB")))
    }
}

/// Pure.
fn objects(mut answer: Value) -> Vec<Value> {
    match answer.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        // A list that has none may write `null`.
        Some(_) => Vec::new(),
        None => vec![answer],
    }
}

/// Pure.
fn failure(code: StatusCode, status: &Value) -> Failure {
    let text = text_of(status);
    match code {
        StatusCode::UNAUTHORIZED => Failure::Unauthorized(text),
        StatusCode::FORBIDDEN => Failure::Forbidden(text),
        _ => Failure::Other(format!("the API server answered {code}: {text}")),
    }
}

/// A failure of the question for the machine itself, as the page gets it. Pure.
pub(crate) fn refusal(failure: Failure) -> Refusal {
    if let Failure::Unauthorized(text) = failure {
        return Refusal::Unauthorized(text);
    }
    if let Failure::NoAnswer(_) = failure {
        return Refusal::Late(DIAGNOSED_WITHIN.as_secs());
    }
    Refusal::Diagnosis(failure.to_string())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::sync::watch;

    use super::*;
    use crate::tls::testing::{both, pair};

    #[test]
    fn a_service_account_looks_into_its_own_namespace() {
        assert_eq!(namespace_of(Some("system:serviceaccount:tenant:viewer")), "tenant");
        assert_eq!(namespace_of(Some("ada")), "default");
        assert_eq!(namespace_of(None), "default");
    }

    #[test]
    fn answers_of_a_diagnosis_are_bounded_together() {
        let read = AtomicUsize::new(0);
        for _ in 0..3 {
            count(&read, LONGEST_ANSWER).unwrap();
        }
        assert!(matches!(count(&read, 1), Err(Failure::Other(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn all_questions_of_a_diagnosis_have_one_time() {
        // It takes connections, and says nothing.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (_, trusted) = both(&pair());
        let port = silent.local_addr().unwrap().port();
        let api = ApiServer::new("localhost", port, watch::channel(Arc::new(trusted)).1).unwrap();
        let begun = Instant::now();
        let looking = Looking {
            runtime: Handle::current(),
            api: Arc::new(api),
            token: Token::new("abc").unwrap(),
            namespace: "tenant".to_owned(),
            garboard: "garboard".into(),
            questions: Arc::new(Semaphore::new(1)),
            until: begun + Duration::from_secs(1),
            read: AtomicUsize::new(0),
        };
        for _ in 0..3 {
            let failure = looking.get("/api/v1/namespaces").await.unwrap_err();
            assert_eq!(refusal(failure), Refusal::Late(60));
        }
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_list_is_its_objects_and_an_object_itself() {
        assert_eq!(objects(json!({"items": [{"a": 1}, {"b": 2}]})).len(), 2);
        assert_eq!(objects(json!({"kind": "Pod"})), [json!({"kind": "Pod"})]);
        assert!(objects(json!({"kind": "PodList", "items": []})).is_empty());
        assert!(objects(json!({"kind": "PodList", "items": null})).is_empty());
    }

    #[test]
    fn refusals_of_the_api_server_are_distinguished() {
        let status = json!({"message": "pods is forbidden: User \"bob\" cannot list\u{1b}[2J"});
        let text = "pods is forbidden: User \"bob\" cannot list[2J".to_owned();
        assert_eq!(failure(StatusCode::FORBIDDEN, &status), Failure::Forbidden(text.clone()));
        assert_eq!(refusal(failure(StatusCode::UNAUTHORIZED, &status)), Refusal::Unauthorized(text));
        assert!(matches!(refusal(failure(StatusCode::FORBIDDEN, &status)), Refusal::Diagnosis(_)));
        assert!(matches!(failure(StatusCode::INTERNAL_SERVER_ERROR, &Value::Null), Failure::Other(_)));
    }
}
