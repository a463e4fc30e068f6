"""The chart deploy/helm/garboard, made from deploy/base: its templates, and the defaults in values.yaml. Pure."""

import re
from collections.abc import Callable

# What an installation chooses, line by line. `garboard cluster install` chooses the same
# (cli/plugin/src/operate/manifest.rs); tests/e2e/deploy/test_chart.py compares what both make.
NAMESPACE = "{{ .Release.Namespace }}"
IMAGE = '{{ include "garboard.image" (list $ "%s") }}'
PULL_POLICY = '{{ include "garboard.pullPolicy" $ }}'
# Arguments of the controller that are values: the option, what deploy/base has for it, and what the chart has.
ARGUMENTS = [
    ("--launcher-image", r"\S+/garboard/launcher:\S+", IMAGE % "launcher"),
    ("--launcher-pull-policy", "Never", PULL_POLICY),
]
LINES: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [
    (re.compile(r"^(\s*(?:- )?namespace: )garboard$"), lambda found: found[1] + NAMESPACE),
    (re.compile(r"^(\s*namespaces: )\[garboard\]$"), lambda found: f"{found[1]}[{NAMESPACE}]"),
    (
        re.compile(r"^(\s*image: )\S+/garboard/([a-z]+):\S+$"),
        lambda found: found[1] + IMAGE % found[2],
    ),
    # What monitoring asks, by its name.
    (
        re.compile(r"^(\s*(?:serverName|replacement): garboard-\w+\.)garboard(\.svc(?::\d+)?)$"),
        lambda found: found[1] + NAMESPACE + found[2],
    ),
    (re.compile(r"^(\s*imagePullPolicy: )Never$"), lambda found: found[1] + PULL_POLICY),
]
PULL_SECRETS = """\
{indent}{{{{- with .Values.imagePullSecrets }}}}
{indent}imagePullSecrets: {{{{- toYaml . | nindent {deeper} }}}}
{indent}{{{{- end }}}}"""
# Whose spans are sent to a collector, by variables beside their own.
TRACED = {"controller.yaml", "node.yaml"}
ENVIRONMENT = re.compile(r"^( *)env:$")
COLLECTOR = """\
{indent}{{{{- with .Values.tracing.environment }}}}
{indent}{{{{- toYaml . | nindent {depth} }}}}
{indent}{{{{- end }}}}"""
# The release's own KubeVirt object is made when webhooks are there and nothing answers them yet: it is not asked about.
SETTINGS_WEBHOOK = re.compile(r"^- name: \w+-kubevirts\.kubevirt\.io$")
WEBHOOK = re.compile(r"^- name: ")
OWN_SETTINGS = """\
  {{- if include "garboard.hasSettings" $ }}
  - name: is-not-of-the-release
    expression: >-
      !(request.operation == 'CREATE' && object.metadata.name == 'kubevirt'
      && object.metadata.namespace == '{{ .Release.Namespace }}'
      && object.metadata.?labels[?'app.kubernetes.io/managed-by'].orValue('') == '{{ .Release.Service }}')
  {{- end }}"""
# Nor are the release's own instancetypes and preferences.
SIZES_WEBHOOK = re.compile(r"^- name: validate-sizes\.instancetype\.kubevirt\.io$")
OWN_SIZES = """\
  {{- if include "garboard.hasCommonInstancetypes" $ }}
  - name: is-not-of-the-release
    expression: >-
      !(request.operation == 'CREATE' && request.resource.resource.startsWith('virtualmachinecluster')
      && object.metadata.?labels[?'app.kubernetes.io/part-of'].orValue('') == 'garboard'
      && object.metadata.?labels[?'app.kubernetes.io/managed-by'].orValue('') == '{{ .Release.Service }}')
  {{- end }}"""
ACCOUNT = re.compile(r"^(\s*)serviceAccountName: ")
# What of a file is a value: its key, which of those with that key it is, and the value's name.
VALUES = {
    "controller.yaml": [
        ("replicas", 0, "controller.replicas"),
        ("nodeSelector", 0, "controller.nodeSelector"),
        ("tolerations", 0, "controller.tolerations"),
        ("resources", 0, "controller.resources"),
    ],
    "dashboard.yaml": [
        ("replicas", 0, "dashboard.replicas"),
        ("nodeSelector", 0, "dashboard.nodeSelector"),
        ("tolerations", 0, "dashboard.tolerations"),
        ("resources", 0, "dashboard.resources"),
    ],
    "node.yaml": [
        ("nodeSelector", 0, "node.nodeSelector"),
        ("tolerations", 0, "node.tolerations"),
        ("resources", 0, "facts.resources"),
        ("resources", 1, "node.resources"),
    ],
}
# Helm makes the namespace of a release itself; this is for `helm template`.
NAMESPACE_FILE = "namespace.yaml"
NAMESPACE_NAME = re.compile(r"^(  name: )garboard$", re.M)
# What is installed only where a value says so: the file, and the value.
OPTIONAL = {"dashboard.yaml": "dashboard.enabled", "monitoring.yaml": "monitoring.enabled"}
# The dashboard's certificate may be in a Secret of the administrator's; browsers may reach it by names of theirs.
OWN_CERTIFICATE = ".Values.dashboard.tlsSecret"
CERTIFICATE = re.compile(r"^( *secretName: )(garboard-dashboard)$")
SECRET = re.compile(r"^kind: Secret$", re.M)
LAST_ARGUMENT = re.compile(r"^( *)- --api-authority=\S+$")
HOSTS = """\
{indent}{{{{- range .Values.dashboard.hosts }}}}
{indent}- --host={{{{ . }}}}
{indent}{{{{- end }}}}"""
# The common instancetypes and preferences: which label says who manages them, and whether there are any.
LABELS = re.compile(r"^  labels:\n", re.M)
MANAGED = "    app.kubernetes.io/managed-by: {{ .Release.Service }}\n"
COMMON = """\
# Written by deploy/render from deploy/common-instancetypes.yaml, which deploy/catalogue makes: change it there.
{{{{- if include "garboard.hasCommonInstancetypes" $ }}}}
{body}{{{{- end }}}}
"""
# A line of values.in.yaml that gets what deploy/base has: `  resources: @controller.resources`.
LIFTED = re.compile(r"^( *)(\w+): @([\w.]+)$", re.M)
HEAD = "# Written by deploy/render from deploy/base/{name}: change it there.\n"


def indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def extent(lines: list[str], at: int) -> int:
    """Where the value of the key in line `at` ends: before the next line that is no deeper and no entry of its list."""
    depth, end = indentation(lines[at]), at + 1
    while end < len(lines) and (indentation(lines[end]) > depth or re.match(rf" {{{depth}}}- ", lines[end])):
        end += 1
    return end


def place(lines: list[str], key: str, number: int) -> int:
    """The line of a key, of those with that key the one with this number."""
    return [at for at, line in enumerate(lines) if re.match(rf" *{key}:", line)][number]


def lifted(name: str, text: str) -> dict[str, list[str]]:
    """The lines of each value that a file has, as they stand below their key."""
    lines = text.splitlines()
    found: dict[str, list[str]] = {}
    for key, number, value in VALUES.get(name, []):
        at = place(lines, key, number)
        inline = lines[at].partition(":")[2].strip()
        found[value] = [inline] if inline else lines[at + 1 : extent(lines, at)]
    return found


def substituted(line: str) -> str:
    for pattern, substitute in LINES:
        if found := pattern.match(line):
            return substitute(found)
    for option, usual, value in ARGUMENTS:
        if found := re.match(rf"^(\s*- {option}=){usual}$", line):
            return found[1] + value
    return line


def with_values(name: str, lines: list[str]) -> list[str]:
    """The lines with the chart's values in place of what deploy/base has."""
    # From the last to the first, so that places stay where they are.
    for key, number, value in sorted(VALUES.get(name, []), key=lambda one: -place(lines, *one[:2])):
        at = place(lines, key, number)
        head, _, inline = lines[at].partition(":")
        depth = indentation(head) + 2
        block = f" {{{{- toYaml .Values.{value} | nindent {depth} }}}}"
        reference = f" {{{{ .Values.{value} }}}}" if inline.strip() else block
        lines[at : extent(lines, at)] = [f"{head}:{reference}"]
    return lines


def template(name: str, text: str) -> str:
    """The template of a file of deploy/base."""
    return HEAD.format(name=name) + (optional(name, text) if name in OPTIONAL else content(name, text))


def own_condition(webhook: str) -> str:
    """What a webhook leaves out of what a release makes itself; for most it is nothing."""
    return OWN_SETTINGS if SETTINGS_WEBHOOK.match(webhook) else OWN_SIZES if SIZES_WEBHOOK.match(webhook) else ""


def content(name: str, text: str) -> str:
    """The file with the chart's values in it."""
    if "{{" in text:
        raise ValueError(f"deploy/base/{name} has {{{{, which Helm would read")
    made, condition = [], ""
    for line in with_values(name, text.removeprefix("---\n").splitlines()):
        made.append(substituted(line))
        if WEBHOOK.match(line):
            condition = own_condition(line)
        if condition and line == "  matchConditions:":
            made.append(condition)
        if name in TRACED and (own := ENVIRONMENT.match(line)):
            made.append(COLLECTOR.format(indent=own[1], depth=len(own[1])))
        if account := ACCOUNT.match(line):
            made.append(PULL_SECRETS.format(indent=account[1], deeper=len(account[1]) + 2))
    body = "\n".join(made) + "\n"
    if name == NAMESPACE_FILE:
        named = NAMESPACE_NAME.sub(lambda found: found[1] + NAMESPACE, body)
        body = f"{{{{- if .Values.namespace.create }}}}\n{named}{{{{- end }}}}\n"
    return body


def optional(name: str, text: str) -> str:
    """The same of a file that a value has installed."""
    lines = []
    for line in content(name, text).splitlines():
        own = CERTIFICATE.match(line)
        lines.append(f'{own[1]}{{{{ {OWN_CERTIFICATE} | default "{own[2]}" }}}}' if own else line)
        if argument := LAST_ARGUMENT.match(line):
            lines.append(HOSTS.format(indent=argument[1]))
    # Without the Secret there must be no empty document, after which Helm loses the next one.
    condition = f"{{{{- if not {OWN_CERTIFICATE} }}}}\n"
    *documents, last = "\n".join(lines).split("\n---\n")
    ended = [f"{each}\n---\n" for each in documents]
    body = "".join(f"{condition}{each}{{{{- end }}}}\n" if SECRET.search(each) else each for each in ended) + last
    return f"{{{{- if .Values.{OPTIONAL[name]} }}}}\n{body}\n{{{{- end }}}}\n"


def common(text: str) -> str:
    """The template of the common instancetypes and preferences."""
    if "{{" in text:
        raise ValueError("deploy/common-instancetypes.yaml has {{, which Helm would read")
    body = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    return COMMON.format(body=LABELS.sub(lambda found: found[0] + MANAGED, body))


def values(skeleton: str, known: dict[str, list[str]]) -> str:
    """values.yaml: the skeleton with each `@NAME` replaced by the lines that deploy/base has for it."""

    def fill(found: re.Match[str]) -> str:
        indent, key, name = found.groups()
        lines = known[name]
        if len(lines) == 1 and not lines[0].startswith(" "):
            return f"{indent}{key}: {lines[0]}"
        shallow = min(map(indentation, lines))
        return "\n".join([f"{indent}{key}:"] + [f"{indent}  {line[shallow:]}" for line in lines])

    return LIFTED.sub(fill, skeleton)


def files(base: dict[str, str], skeleton: str) -> dict[str, str]:
    """Each generated file of the chart by its path in it, from the texts of deploy/base by their names."""
    known: dict[str, list[str]] = {}
    for name, text in base.items():
        known |= lifted(name, text)
    made = {f"templates/{name}": template(name, text) for name, text in base.items()}
    note = "# Written by deploy/render from deploy/helm/values.in.yaml and deploy/base: change it there.\n"
    return made | {"values.yaml": note + values(skeleton, known)}
