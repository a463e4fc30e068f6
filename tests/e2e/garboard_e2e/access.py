"""What a role of users gives, verb by verb. It is asked as KubeVirt's own test asks (tests/access_test.go): about a
user who has that role and is in no group. `default` has no role, and is in the group of all who are authenticated."""

import dataclasses
from collections.abc import Mapping

from .api_server import ApiServer, Caller, Request
from .outcome import Failure
from .rights import HOLDERS, TYPES_VIEWER

VERBS = frozenset(("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"))
Verbs = frozenset[str]
NONE: Verbs = frozenset()
DEFAULT, AUTHENTICATED = "default", "system:authenticated"
USERS = (*HOLDERS, TYPES_VIEWER, DEFAULT)


@dataclasses.dataclass(frozen=True)
class Access:
    """What each user has of RESOURCE or RESOURCE/SUBRESOURCE, in a namespace or, without one, in all of them. Who is
    not named has nothing."""

    group: str
    resource: str
    users: Mapping[str, Verbs]
    namespace: str = "default"

    def holds(self, server: ApiServer) -> None:
        for user in USERS:
            given, expected = self.given(server, user), self.users.get(user, NONE)
            if given != expected:
                raise Failure(f"{user} has {sorted(given)} of {self.resource}, and should have {sorted(expected)}")

    def given(self, server: ApiServer, user: str) -> Verbs:
        return frozenset(verb for verb in VERBS if self.is_given(server, user, verb))

    def is_given(self, server: ApiServer, user: str, verb: str) -> bool:
        resource, _, subresource = self.resource.partition("/")
        attributes = {"verb": verb, "group": self.group, "resource": resource, "namespace": self.namespace}
        groups = [AUTHENTICATED] if user == DEFAULT else []
        spec = {"user": user, "groups": groups, "resourceAttributes": attributes | {"subresource": subresource}}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = server.ask(Request(Caller(), "POST", path, {"spec": spec}))
        if not answer.is_granted:
            raise Failure(f"the question itself is refused: {answer.message}")
        return bool(answer.body["status"]["allowed"])
