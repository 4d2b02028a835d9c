#pragma once
// The failure of a rank of a job, and the file about the first one in the job's folder.

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace mgplan::jobs {

/// The failure of a rank, as seen on its own machine.
struct RankFailure {
    int rank = 0;
    std::string node;
    int code = 0;        ///< as a shell has it: 128 + signal
    std::string reason;  ///< "was killed by signal 9 (Killed)", or a sentence about a difference from the plan
    std::string log;     ///< its path; empty if there is none yet
};

/// Returns the failure as one sentence.
[[nodiscard]] std::string text_of(const RankFailure& failure);

/// Reads the failure that the first failed rank wrote into a folder of logs; nothing if there is none.
[[nodiscard]] std::optional<RankFailure> first_failure(const std::string& logs);

/// Writes a failure into a folder of logs, unless another rank has done so.
void leave_word(const std::string& logs, const RankFailure& failure);

/// Its fields under their names: in the failure's file, in a job's record, in `mgplan status --format json`. The reader throws
/// nlohmann::json::exception for JSON that is no failure.
void to_json(nlohmann::ordered_json& json, const RankFailure& failure);
void from_json(const nlohmann::ordered_json& json, RankFailure& failure);

}  // namespace mgplan::jobs
