#pragma once
// The answer of `mgplan check`: is a Megatron-LM command legal, does it fit, how fast is it, what would be better?

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/input/flag_account.hpp"
#include "formats/megatron/megatron_job.hpp"
#include "plan/training/batch_schedule.hpp"
#include "plan/workload.hpp"
#include "reports/plan_report.hpp"

namespace mgplan::reports {

/// A layout that is faster (or fits, where the asked one does not), and the flags that lead to it.
struct BetterLayout {
    PlannedLayout plan;
    /// "--tensor-model-parallel-size 4 -> 2", "add --sequence-parallel", "drop --recompute-granularity full".
    std::vector<std::string> changes;
};

struct MegatronCheck {
    Workload workload;
    std::vector<std::string> assumed;
    formats::FlagAccount flags;              ///< of the command
    std::vector<std::string> broken;         ///< rules that the asked layout breaks, each with a way out; empty where it is legal
    std::optional<PlannedLayout> asked;      ///< where it is legal
    std::optional<TrainingCourse> training;  ///< of it, where the command says how long it goes on or how the batch grows
    std::vector<BetterLayout> better;        ///< best first
    bool searched = false;                   ///< whether better ones were looked for
    std::string_view why_not_searched = "--top 0";
    std::int64_t evaluated = 0;  ///< layouts timed for it: those that fit
};

/// How the flags of `from` become those of `to`, in the order of `to`; flags that only `from` has come last.
[[nodiscard]] std::vector<std::string> flag_changes(const formats::MegatronJob& from, const formats::MegatronJob& to);

/// How much faster than the asked layout: 0.25 is a quarter more tokens per second. Nothing where there is nothing to compare with.
[[nodiscard]] std::optional<double> gain(const MegatronCheck& check, const BetterLayout& better);

/// Whether the command keeps the rules and fits; nothing where a flag that decides it is not computed, and fits for an illegal one.
[[nodiscard]] std::optional<bool> is_legal(const MegatronCheck& check);
[[nodiscard]] std::optional<bool> fits(const MegatronCheck& check);

/// What a job's gate needs to know of a command before it takes a cluster.
enum class GateVerdict { runs, illegal, does_not_fit, cannot_say };
/// A broken rule first, then memory, then what is not computed: what is known to fail is never left open.
[[nodiscard]] GateVerdict gate_verdict(const MegatronCheck& check);
/// One line: "runs: tp8 pp2 …; 61.2 GiB of 79.1 GiB …; 1.83 s a step (1.70 s to 1.96 s)", "illegal: RULE (and 2 more)",
/// "does not fit: …", "cannot say: --flextron (elastic sub-networks (Flextron)) is not computed".
[[nodiscard]] std::string gate_line(const MegatronCheck& check);
/// The line of a command of which nothing is judged: "illegal: PROBLEM (and 2 more)". `problems` is not empty.
[[nodiscard]] std::string refusal_line(std::string_view verdict, const std::vector<std::string>& problems);

[[nodiscard]] std::string megatron_check_text(const MegatronCheck& check);
/// {"legal","problems","fits","layout","predicted","training","better":[{"layout","predicted","gain","changes"}],"evaluated","assumed","used",
/// "not_computed","unknown"}; layout, predicted, training and fits are null where the command is not legal, legal and fits where a flag
/// that decides them is not computed.
[[nodiscard]] std::string megatron_check_json(const MegatronCheck& check);
/// One line for the asked layout and one for each better one.
[[nodiscard]] std::string megatron_check_csv(const MegatronCheck& check);

}  // namespace mgplan::reports
