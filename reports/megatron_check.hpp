#pragma once
// Output of `mgplan check` for a Megatron-LM command: legality, memory, speed, and better layouts.

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

/// A layout that is faster (or fits, if the command's does not), and the flags to change for it.
struct BetterLayout {
    PlannedLayout plan;
    /// "--tensor-model-parallel-size 4 -> 2", "add --sequence-parallel", "drop --recompute-granularity full".
    std::vector<std::string> changes;
};

struct MegatronCheck {
    Workload workload;
    std::vector<std::string> assumed;
    BatchSource batch_source = BatchSource::given;
    formats::FlagAccount flags;              ///< flags of the command
    std::vector<std::string> broken;         ///< rules that the command's layout breaks, each with a way out; empty if it is legal
    std::optional<PlannedLayout> asked;      ///< the command's layout; set if it is legal
    std::optional<TrainingCourse> training;  ///< set if the command limits the training or changes the batch size on the way
    std::vector<BetterLayout> better;        ///< best first
    bool searched = false;                   ///< true if better layouts were searched
    std::string_view why_not_searched = "--top 0";
    std::int64_t evaluated = 0;  ///< number of layouts whose time was computed: those that fit
};

/// Changes that turn the flags of `from` into those of `to`, in the order of `to`; flags only in `from` come last.
[[nodiscard]] std::vector<std::string> flag_changes(const formats::MegatronJob& from, const formats::MegatronJob& to);

/// Speedup over the command's layout: 0.25 is a quarter more tokens per second. Nothing if there is nothing to compare with.
[[nodiscard]] std::optional<double> gain(const MegatronCheck& check, const BetterLayout& better);

/// True if the command is legal, or if it fits. Nothing if a flag that affects the answer is not computed; fits() also returns nothing for
/// an illegal command.
[[nodiscard]] std::optional<bool> is_legal(const MegatronCheck& check);
[[nodiscard]] std::optional<bool> fits(const MegatronCheck& check);

/// Verdict on a command before its job is started.
enum class GateVerdict { runs, illegal, does_not_fit, cannot_say };
/// Checks broken rules, then unknown flags (cannot_say), then memory, then flags that are not computed.
[[nodiscard]] GateVerdict gate_verdict(const MegatronCheck& check);
/// One line: "runs: tp8 pp2 …; 61.2 GiB of 79.1 GiB …; 1.83 s a step (1.70 s to 1.96 s)", "illegal: RULE (and 2 more)", "does not fit: …",
/// "cannot say: --flextron (elastic sub-networks (Flextron)) is not computed".
[[nodiscard]] std::string gate_line(const MegatronCheck& check);
/// The line for a command that cannot be read: "illegal: PROBLEM (and 2 more)". `problems` must not be empty.
[[nodiscard]] std::string refusal_line(std::string_view verdict, const std::vector<std::string>& problems);

[[nodiscard]] std::string megatron_check_text(const MegatronCheck& check);
/// {"legal","problems","fits","layout","predicted","training","better":[{"layout","predicted","gain","changes"}],"evaluated","assumed","used",
/// "not_computed","unknown"}; layout, predicted, training and fits are null if the command is not legal; legal and fits are null if a flag
/// that affects them is not computed.
[[nodiscard]] std::string megatron_check_json(const MegatronCheck& check);
/// One line for the command's layout and one for each better one.
[[nodiscard]] std::string megatron_check_csv(const MegatronCheck& check);

}  // namespace mgplan::reports
