#pragma once
// How a rank of a job failed, and the word that the first of them leaves in the job's folder.

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace mgplan::jobs {

/// How a rank failed, as its own machine saw it.
struct RankFailure {
    int rank = 0;
    std::string node;
    int code = 0;        ///< as a shell has it: 128 + signal
    std::string reason;  ///< "was killed by signal 9 (Killed)", or a sentence about what was not as planned
    std::string log;     ///< its path; empty where there is none yet
};

/// Says it in one sentence.
[[nodiscard]] std::string text_of(const RankFailure& failure);

/// Reads the failure that the rank that failed first left in a folder of logs; nothing where none did.
[[nodiscard]] std::optional<RankFailure> first_failure(const std::string& logs);

/// Leaves word of a failure in a folder of logs, unless another rank has done so.
void leave_word(const std::string& logs, const RankFailure& failure);

/// Its fields under their names: in the word left, in a job's record, in `mgplan status --format json`. The reader throws
/// nlohmann::json::exception for what is no failure.
void to_json(nlohmann::ordered_json& json, const RankFailure& failure);
void from_json(const nlohmann::ordered_json& json, RankFailure& failure);

}  // namespace mgplan::jobs
