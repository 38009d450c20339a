"""HyperPod API calls, bounded and with the core's errors. Reads are retried; a call that acts is sent once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import boto3
from botocore.exceptions import ClientError

from holdfast.model.errors import NotFound, Unavailable
from holdfast.providers.aws.client import bounds
from holdfast.providers.aws.errors import error_code, translated
from holdfast.providers.hyperpod.answers import BatchResult, PodCluster, read_batch, read_cluster
from holdfast.providers.hyperpod.settings import HyperpodSettings

if TYPE_CHECKING:
    Answer = Mapping[str, Any]

REPLACE, REBOOT = "BatchReplaceClusterNodes", "BatchRebootClusterNodes"
MAX_PAGES = 1000
"""Most pages of one list; more is an error, not an endless loop."""


class SageMaker(Protocol):
    """The part of boto3's SageMaker client that is used here."""

    def describe_cluster(self, *, ClusterName: str) -> Answer: ...  # noqa: N803 - boto3's own names
    def list_cluster_nodes(self, **request: Any) -> Answer: ...
    def describe_cluster_node(self, *, ClusterName: str, NodeId: str) -> Answer: ...  # noqa: N803
    def batch_replace_cluster_nodes(self, *, ClusterName: str, NodeIds: Sequence[str]) -> Answer: ...  # noqa: N803
    def batch_reboot_cluster_nodes(self, *, ClusterName: str, NodeIds: Sequence[str]) -> Answer: ...  # noqa: N803


class HyperpodApi:
    """One HyperPod cluster. Thread-safe."""

    def __init__(self, settings: HyperpodSettings, session: boto3.session.Session | None = None) -> None:
        self._settings = settings
        opened = session or boto3.session.Session()
        self._read = _open_client(settings, opened, settings.attempts)
        self._act = _open_client(settings, opened, 1)

    def cluster(self) -> PodCluster:
        """DescribeCluster, called now."""
        with translated("DescribeCluster"):
            return read_cluster(self._read.describe_cluster(ClusterName=self._settings.cluster))

    def summaries(self) -> Iterator[Answer]:
        """Every node that ListClusterNodes shows, page by page. Raises Unavailable when its pages do not end."""
        request: dict[str, Any] = {"ClusterName": self._settings.cluster, "MaxResults": self._settings.page_size}
        for _ in range(MAX_PAGES):
            with translated("ListClusterNodes"):
                page = self._read.list_cluster_nodes(**request)
            yield from page["ClusterNodeSummaries"]
            if not page.get("NextToken"):
                return
            request["NextToken"] = page["NextToken"]
        raise Unavailable(f"ListClusterNodes: more than {MAX_PAGES} pages")

    def details(self, instance_id: str) -> Answer:
        """DescribeClusterNode. Raises NotFound when HyperPod reports no such node (the list decides whether it exists)."""
        with translated("DescribeClusterNode"):
            try:
                answer = self._read.describe_cluster_node(ClusterName=self._settings.cluster, NodeId=instance_id)
            except ClientError as error:
                if error_code(error) == "ResourceNotFound":
                    raise NotFound(f"DescribeClusterNode: HyperPod has no {instance_id}") from error
                raise
        return cast("Answer", answer["NodeDetails"])

    def ask(self, operation: str, instance_id: str) -> BatchResult:
        """Send a batch call and return its result. Only the instance id is sent, never a logical id: it ends with its machine, so
        that a repeated replacement never affects the new one."""
        call = self._act.batch_replace_cluster_nodes if operation == REPLACE else self._act.batch_reboot_cluster_nodes
        with translated(operation):
            return read_batch([instance_id], call(ClusterName=self._settings.cluster, NodeIds=[instance_id]))[
                instance_id
            ]


def _open_client(settings: HyperpodSettings, session: boto3.session.Session, attempts: int) -> SageMaker:
    client = session.client(
        "sagemaker",
        region_name=settings.region,
        endpoint_url=settings.endpoint_url,
        config=bounds(settings.connect_timeout_s, settings.read_timeout_s, attempts),
    )
    return cast("SageMaker", client)
