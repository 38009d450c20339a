"""What the providers on AWS share: EC2's machines and notices, AWS's errors, clients with bounds."""

from __future__ import annotations

LOOK = (
    "ec2:DescribeInstances",
    "ec2:DescribeInstanceStatus",
    "ec2:DescribeSpotInstanceRequests",
    "ec2:DescribeCapacityReservations",
)
"""What every provider needs that looks at machines by :mod:`holdfast.providers.aws.calls`."""
