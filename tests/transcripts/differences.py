"""Where we differ from the recordings on purpose: the only place, each with its reason.

A pattern (`fnmatch`) is matched against lines `NUMBER WHERE PLACE KIND` as `player` reports them: KIND is `absent` or
`added` for members, `missing` or `surplus` for messages, `order`, `value`, `type`, `length`, `identity` or `outcome`. A
test fails when a pattern matches nothing any more.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """Lines that are meant to be, and why; `times`: as many and no more, where that does not depend on the moment."""

    pattern: str
    reason: str
    times: int | None = None


_GROUPS: dict[str, tuple[str | tuple[str, int], ...]] = {
    "Additions of ours, which clients of the reference pass over.": (
        "* answer:thread/* result.cursor added",
        "* answer:* error.data added",
        "* thread/reverted params.reason added",
        "* thread/reverted params.turnIds added",
        "* thread/tokenUsage/updated params.inherited added",
        "05 thread/rollback unsent",
        "14 server/diagnostics unsent",
    ),
    "There is no account here, so nothing is said of its limits.": ("* account/rateLimits/updated missing",),
    "The recording's model was unknown to the reference; here models are whatever the service offers.": (
        "* warning missing",
        "* answer:model/list result*",
    ),
    "Only settings that this server has are told.": ("* answer:config/read result*",),
    "What is malformed gets an answer as well: whoever sent it would wait for ever.": (
        "02 answer * surplus",
        "09 answer * surplus",
    ),
    "Lists of what does not exist here are empty, without an entry for each folder that was asked about.": (
        "* answer:hooks/list result*",
        "2? answer:skills/list result*",
        "* answer:collaborationMode/list result*",
        "14 answer:experimentalFeature/list result*",
        "14 answer:permissionProfile/list result*",
        "14 answer:threadSection/list result*",
        "* answer:configRequirements/read result.supportsIndependentSpeedModes value*",
    ),
    "Methods that are not ours are unknown; the TUI and the SDKs do without them.": (
        "14 answer:modelProvider/* outcome*",
        "14 answer:remoteControl/status/read * outcome*",
        "14 answer:thread/timeline/list * outcome*",
        "14 answer:memory/status * outcome*",
        "14 answer:environment/status error.message value*",
        "14 answer:getConversationSummary * outcome*",
        "14 answer:gitDiffToRemote error.message value*",
        "14 answer:fuzzyFileSearch * outcome*",
        "14 answer:command/exec * outcome*",
        "14 answer:config/value/write * outcome*",
        "14 answer:thread/search * outcome*",
        "14 answer:review/start error.message value*",
        "15 answer:thread/search error.message value*",
    ),
    "Nobody parses these words; ours say the same.": (
        "* error.message value 'invalid * id: invalid character*",
        "02 answer:thread/list error.message value*sequence*",
        "05 answer:thread/inject_items error.message value*WrappedItem*",
        "17 answer:thread/start error.message value*granular*",
        "17 answer:turn/start error.message value*skill*",
    ),
    "The preview says what the thread shows now, not what was taken back.": (
        "*.preview value 'slow:30 long' *",
        "*.preview value 'after revert' 'q0'",
    ),
    "A thread that never ran and was archived has a log, and every log is listed.": (
        "07 answer:thread/list result.readStates.* added",
    ),
    "A thread is listed once, also when it has several files.": (
        "07 answer:thread/list result.data length 15 13",
        "02 answer:thread/list result.data length 22 20",
    ),
    "Lists tell what a thread was forked from and what for.": (
        "* answer:thread/list result.data[[]].forkedFromId type null string",
        "2? answer:thread/list result.data[[]].threadSource type null string",
    ),
    "A fork is another thread: it has no name until it is given one.": (
        "* answer:thread/fork result.thread.name type string null",
        "* thread/started params.thread.name type string null",
        "02 answer:thread/list result.data[[]].name type string null",
        "2? answer:thread/* *name type string null",
    ),
    "The page before a page includes where it was asked from.": (
        "07 answer:thread/list result.data length 0 1",
        "07 answer:thread/list result.backwardsCursor type null string",
    ),
    "A request that was cut off has told no usage, and none is made up; a compaction's is told as it is known.": (
        ("05 thread/tokenUsage/updated missing", 2),
        ("08 thread/tokenUsage/updated missing", 2),
        ("13 thread/tokenUsage/updated missing", 1),
        ("15 thread/tokenUsage/updated missing", 1),
        ("18 thread/tokenUsage/updated missing", 9),
        ("2? thread/tokenUsage/updated missing", 6),
    ),
    "There never is a goal; only the caller is told so, once.": (
        ("08 thread/goal/cleared missing", 2),
        ("18 thread/goal/cleared missing", 4),
        "15 answer:thread/resume before thread/goal/cleared order",
    ),
    "An unknown turn is refused before anything is read.": (("05 deprecationNotice missing", 1),),
    "A steered request goes out at once, so that its message is recorded before the interrupt.": (
        "04 item/*:userMessage surplus",
        "04 model asked 'steer!' unplanned",
    ),
    "Items of legacy threads keep their ids and times while the thread is live; paging works for them too.": (
        "15 answer:thread/* result.thread.turns[[]].items[[]].*",
        "15 answer:thread/resume result.*BackwardsCursor type null string",
    ),
    "The reference's second process knew nothing of the thread that the first had unloaded.": (
        "15 thread/status/changed:* surplus",
    ),
    "Nothing of a turn follows its end: what it asked is withdrawn first, and its count is told with its end.": (
        "10 turn/completed before serverRequest/resolved order",
        "10 thread/tokenUsage/updated before answer:turn/interrupt order",
    ),
    "There are no rules of execution here that an approval could amend; all other decisions are offered.": (
        "1? item/commandExecution/requestApproval params.proposedExecpolicyAmendment absent",
        "1? item/commandExecution/requestApproval params.availableDecisions*",
    ),
    "Every request is told to be resolved, so that those who did not answer it know.": (
        ("11 serverRequest/resolved surplus", 2),
    ),
    "Who came while a command waited for its approval is told how it ended.": (
        ("18 item/completed:commandExecution surplus", 1),
    ),
    "A thread's originator is the client that began it, not the first one of the process.": (
        "18 *.thread.originator value 'a' 'c'",
    ),
    "A thread that never ran has no turns and no items; an empty page says so.": (
        "* answer:thread/read * outcome*list_turns is not supported yet*",
        "* answer:thread/turns/list * outcome*is not materialized yet*",
        "17 answer:thread/items/list * outcome*",
        "17 deprecationNotice surplus",
        "2? answer:thread/read result.readState type null object",
    ),
    "Deletion ends a running compaction before the thread goes.": (
        "17 thread/status/changed:* surplus",
        "17 model asked 'Sum up.' unplanned",
    ),
    "We read more slowly instead of refusing (4,000 requests are tried in the tests of the protocol's failures).": (
        ("16 answer:[?] missing", 9),
        "16 answer 1 None surplus",
    ),
    "Permission profiles are told as the sandbox that they are; there is one environment, the server's.": (
        "2? answer:thread/start result.activePermissionProfile type object null",
        "2? *.thread.environments length 0 1",
        "2? thread/settings/updated *",
    ),
    "The terminal's second recording went on in the process of the first, where threads were still loaded; here each "
    "recording has a daemon of its own, and no minute passes until one is unloaded.": (
        "21 answer:thread/loaded/list result.*",
        "21 answer:thread/list result.data[[]].environments type array null",
        "21 answer:thread/list result.data[[]].status.type value 'idle' 'notLoaded'",
        "21 answer:thread/read result.thread.* 'idle' 'notLoaded'",
        "21 answer:thread/read result.thread.canAcceptDirectInput type boolean null",
        "21 answer:thread/read result.thread.environments type array null",
        ("21 thread/status/changed:notLoaded missing", 1),
        ("21 thread/closed missing", 1),
    ),
    "A cursor back belongs to its list; the reference's names a moment, so that equal lists have equal ones.": (
        "21 answer:thread/list result.backwardsCursor identity *",
    ),
    "The preview of an ephemeral thread is its first message, as of any other.": (
        "21 answer:thread/read result.thread.preview value '' *",
    ),
    "A turn is never shown before its answer.": ("21 turn/started before answer:turn/start order",),
    "The text of a message that was cut off is kept and shown, marked as partial.": (
        "* item/completed:agentMessage surplus",
        "04 answer:thread/read result.thread.turns[[]].items length 1 2",
        "20 answer:thread/items/list result.data length 4 5",
    ),
    "Without a tier there is no tier, also after a restart.": ("* answer:thread/resume result.serviceTier type*",),
}


def _differences() -> Iterator[Difference]:
    for reason, patterns in _GROUPS.items():
        for listed in patterns:
            pattern, times = (listed, None) if isinstance(listed, str) else listed
            yield Difference(pattern, reason, times)


DIFFERENCES = tuple(_differences())
