"""Every message between processes; the closed union `Message` is what can arrive after the handshake.

Members send each other messages about membership, the table, migrations, replication and merges. Callers send requests,
each with an id, and get exactly one reply with that id. The structs are defined by subject in `membership_messages`,
`table_messages`, `replication_messages`, `merge_messages`, `key_requests`, `bulk_requests`, `cluster_requests` and
`replies`.
"""

from __future__ import annotations

from phalanx.wire.bulk_requests import (
    ChangeStaged,
    ClearPartitions,
    GetAll,
    PackedRows,
    PutAll,
    PutPacked,
    ReadJournal,
    ScanPacked,
    ScanPartition,
    SizeOf,
    UpdateWhere,
)
from phalanx.wire.cluster_requests import (
    AcceptView,
    AcknowledgeLosses,
    ChangeLite,
    ChangeMap,
    ChangePartitionCount,
    ForgetMember,
    GetActivity,
    GetHistory,
    GetLosses,
    GetMapNames,
    GetMembers,
    GetMigrations,
    GetReplicas,
    GetSafety,
    GetTable,
    GiveUpHolders,
    HoldClusterVersion,
    LeaveCluster,
    RaiseClusterVersion,
    ReplaceContent,
    Replacement,
    StopCluster,
)
from phalanx.wire.disk_messages import DiskReport
from phalanx.wire.key_requests import (
    AcquireLock,
    Contains,
    Get,
    GetLock,
    GetTimeToLive,
    Put,
    PutIfAbsent,
    ReleaseLock,
    Remove,
    RenewLock,
    Replace,
    UpdateValue,
    WriteFenced,
)
from phalanx.wire.membership_messages import (
    Challenge,
    ClaimAnswer,
    Complaint,
    ExplicitSuspicion,
    Heartbeat,
    Hello,
    JoinRedirect,
    JoinRefused,
    JoinRequest,
    JoinResponse,
    LeaseGrant,
    LeaseRequest,
    LeaveRequest,
    LifeAnswer,
    LifeProbe,
    LiteRequest,
    MasterConfirmation,
    MastershipClaim,
    MembersAck,
    MembersUpdate,
    MergeOrder,
    MergeProbe,
    PauseCheck,
    PauseCheckAnswer,
    Proof,
    ReachAnswer,
    ReachProbe,
    Refused,
    StopOrder,
    SuspicionReport,
    ViewIsStable,
    Welcome,
)
from phalanx.wire.memory_messages import CopyRefused, MemoryReport
from phalanx.wire.merge_messages import (
    FindWrite,
    FindWrittenBefore,
    KeptAnswer,
    KeptQuery,
    KeptReport,
    Mark,
    MergeEntries,
    Returned,
    Waiting,
)
from phalanx.wire.message import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION
from phalanx.wire.replication_messages import (
    AppliedBatch,
    AppliedOperation,
    CopyAck,
    CopyChunk,
    CopyStart,
    Forgotten,
    JournalPart,
    OutcomeValue,
    PlacedContent,
    Probe,
    ProbeAnswer,
    RecordedCaller,
    ReplicateAck,
    ReplicateAcks,
    ReplicateClear,
    ReplicateJournal,
    ReplicatePut,
    ReplicateRemove,
    ReplicateStaged,
    ReplicateUpdates,
    StagedJob,
    StagedPast,
)
from phalanx.wire.replies import (
    ActivityReply,
    CountReply,
    DoneReply,
    ErrorReply,
    FlagReply,
    HistoryReply,
    JournalReply,
    KeptByMember,
    LeavingMember,
    LockReply,
    LockStateReply,
    LossesReply,
    MembersReply,
    MigrationsReply,
    MigrationUnderWay,
    MissingMemory,
    NamesReply,
    PackedReply,
    PageReply,
    ReplicasReply,
    SafetyReply,
    TableReply,
    UpdatedReply,
    ValueReply,
    ValuesReply,
)
from phalanx.wire.table_messages import (
    ActiveMigration,
    CompletedMigration,
    FetchedTable,
    FetchTable,
    MajorityHasTable,
    MigrationAnswer,
    MigrationCommit,
    MigrationOrder,
    MigrationReady,
    OwnerEpoch,
    RestartAwaited,
    RowChange,
    StoredSide,
    TableAck,
    TableChanges,
    TableRequest,
    TableUpdate,
)

Handshake = Hello | Challenge | Proof | Welcome | Refused
MembershipMessage = (
    JoinRequest | JoinResponse | JoinRedirect | JoinRefused | MembersUpdate | MembersAck | Heartbeat
    | ViewIsStable | MasterConfirmation | LifeProbe | LifeAnswer | ReachProbe | ReachAnswer | ExplicitSuspicion | Complaint | SuspicionReport | MastershipClaim | ClaimAnswer
    | LeaveRequest | StopOrder | LiteRequest | MergeProbe | MergeOrder | LeaseRequest | LeaseGrant
)  # fmt: skip
WakingMessage = PauseCheck | PauseCheckAnswer
TableMessage = (
    TableUpdate | TableChanges | FetchTable | FetchedTable | RestartAwaited | TableRequest | TableAck | MajorityHasTable
    | MigrationOrder | MigrationReady | MigrationCommit | MigrationAnswer
)  # fmt: skip
Mutation = ReplicatePut | ReplicateRemove | ReplicateUpdates | ReplicateClear | ReplicateJournal | ReplicateStaged
ReplicationMessage = (
    Mutation | ReplicateAck | ReplicateAcks | Probe | ProbeAnswer | CopyStart | CopyChunk
    | CopyAck
)  # fmt: skip
MemoryMessage = MemoryReport | CopyRefused | DiskReport
MergeMessage = KeptQuery | KeptAnswer | KeptReport | FindWrite
MergeRequest = MergeEntries | FindWrittenBefore
KeyRead = Get | Contains | GetTimeToLive | GetLock
KeyWrite = Put | PutIfAbsent | Replace | Remove | UpdateValue | WriteFenced
LockRequest = AcquireLock | RenewLock | ReleaseLock
KeyRequest = KeyRead | KeyWrite | LockRequest
OperationRequest = KeyWrite | ReleaseLock | UpdateWhere
ClientBulkRequest = (
    GetAll
    | PutAll
    | PutPacked
    | UpdateWhere
    | SizeOf
    | ClearPartitions
    | ScanPartition
    | ScanPacked
    | ReadJournal
    | ChangeStaged
)
BulkRequest = ClientBulkRequest | MergeRequest
Inquiry = (
    GetTable | GetMembers | GetMapNames | GetReplicas | GetHistory | GetSafety | GetMigrations | GetLosses | GetActivity
)  # fmt: skip
Administration = (
    ChangeMap | ChangePartitionCount | ChangeLite | AcceptView | ReplaceContent | AcknowledgeLosses
    | RaiseClusterVersion | HoldClusterVersion | GiveUpHolders | LeaveCluster | StopCluster | ForgetMember
)  # fmt: skip
Request = KeyRequest | BulkRequest | Inquiry | Administration
ClientRequest = KeyRequest | ClientBulkRequest | Inquiry | Administration
"""The requests that clients can send. Members can also send each other a `MergeRequest`."""
Reply = (
    ValueReply | LockReply | LockStateReply | ValuesReply | CountReply | FlagReply | DoneReply | PageReply | PackedReply
    | JournalReply | TableReply | MembersReply | UpdatedReply
    | NamesReply | ReplicasReply | HistoryReply | SafetyReply | MigrationsReply | LossesReply
    | ActivityReply | ErrorReply
)  # fmt: skip
Message = (
    MembershipMessage
    | WakingMessage
    | TableMessage
    | ReplicationMessage
    | MemoryMessage
    | MergeMessage
    | Request
    | Reply
)
"""The messages that can arrive after the handshake."""

OPERATIONS = (Put, PutIfAbsent, Replace, Remove, UpdateValue, WriteFenced, ReleaseLock, UpdateWhere)
"""Writes of one key, or of one slice, and releases of locks: the owner applies each once, however often its caller sends it."""
WRITES = (
    Put, PutIfAbsent, Replace, Remove, UpdateValue, WriteFenced, UpdateWhere, PutAll, PutPacked, ClearPartitions,
    ChangeStaged, AcquireLock, RenewLock, ReleaseLock,
)  # fmt: skip
"""Requests that change something."""

__all__ = [
    "OLDEST_PROTOCOL_VERSION",
    "OPERATIONS",
    "PROTOCOL_VERSION",
    "WRITES",
    "AcceptView",
    "AcknowledgeLosses",
    "AcquireLock",
    "ActiveMigration",
    "ActivityReply",
    "Administration",
    "AppliedBatch",
    "AppliedOperation",
    "BulkRequest",
    "Challenge",
    "ChangeLite",
    "ChangeMap",
    "ChangePartitionCount",
    "ChangeStaged",
    "ClaimAnswer",
    "ClearPartitions",
    "ClientBulkRequest",
    "ClientRequest",
    "Complaint",
    "CompletedMigration",
    "Contains",
    "CopyAck",
    "CopyChunk",
    "CopyRefused",
    "CopyStart",
    "CountReply",
    "DiskReport",
    "DoneReply",
    "ErrorReply",
    "ExplicitSuspicion",
    "FetchTable",
    "FetchedTable",
    "FindWrite",
    "FindWrittenBefore",
    "FlagReply",
    "ForgetMember",
    "Forgotten",
    "Get",
    "GetActivity",
    "GetAll",
    "GetHistory",
    "GetLock",
    "GetLosses",
    "GetMapNames",
    "GetMembers",
    "GetMigrations",
    "GetReplicas",
    "GetSafety",
    "GetTable",
    "GetTimeToLive",
    "GiveUpHolders",
    "Handshake",
    "Heartbeat",
    "Hello",
    "HistoryReply",
    "HoldClusterVersion",
    "Inquiry",
    "JoinRedirect",
    "JoinRefused",
    "JoinRequest",
    "JoinResponse",
    "JournalPart",
    "JournalReply",
    "KeptAnswer",
    "KeptByMember",
    "KeptQuery",
    "KeptReport",
    "KeyRead",
    "KeyRequest",
    "KeyWrite",
    "LeaseGrant",
    "LeaseRequest",
    "LeaveCluster",
    "LeaveRequest",
    "LeavingMember",
    "LifeAnswer",
    "LifeProbe",
    "LiteRequest",
    "LockReply",
    "LockRequest",
    "LockStateReply",
    "LossesReply",
    "MajorityHasTable",
    "Mark",
    "MasterConfirmation",
    "MastershipClaim",
    "MembersAck",
    "MembersReply",
    "MembersUpdate",
    "MembershipMessage",
    "MemoryMessage",
    "MemoryReport",
    "MergeEntries",
    "MergeMessage",
    "MergeOrder",
    "MergeProbe",
    "MergeRequest",
    "Message",
    "MigrationAnswer",
    "MigrationCommit",
    "MigrationOrder",
    "MigrationReady",
    "MigrationUnderWay",
    "MigrationsReply",
    "MissingMemory",
    "Mutation",
    "NamesReply",
    "OperationRequest",
    "OutcomeValue",
    "OwnerEpoch",
    "PackedReply",
    "PackedRows",
    "PageReply",
    "PauseCheck",
    "PauseCheckAnswer",
    "PlacedContent",
    "Probe",
    "ProbeAnswer",
    "Proof",
    "Put",
    "PutAll",
    "PutIfAbsent",
    "PutPacked",
    "RaiseClusterVersion",
    "ReachAnswer",
    "ReachProbe",
    "ReadJournal",
    "RecordedCaller",
    "Refused",
    "ReleaseLock",
    "Remove",
    "RenewLock",
    "Replace",
    "ReplaceContent",
    "Replacement",
    "ReplicasReply",
    "ReplicateAck",
    "ReplicateAcks",
    "ReplicateClear",
    "ReplicateJournal",
    "ReplicatePut",
    "ReplicateRemove",
    "ReplicateStaged",
    "ReplicateUpdates",
    "ReplicationMessage",
    "Reply",
    "Request",
    "RestartAwaited",
    "Returned",
    "RowChange",
    "SafetyReply",
    "ScanPacked",
    "ScanPartition",
    "SizeOf",
    "StagedJob",
    "StagedPast",
    "StopCluster",
    "StopOrder",
    "StoredSide",
    "SuspicionReport",
    "TableAck",
    "TableChanges",
    "TableMessage",
    "TableReply",
    "TableRequest",
    "TableUpdate",
    "UpdateValue",
    "UpdateWhere",
    "UpdatedReply",
    "ValueReply",
    "ValuesReply",
    "ViewIsStable",
    "Waiting",
    "WakingMessage",
    "Welcome",
    "WriteFenced",
]
