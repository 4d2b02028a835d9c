#pragma once
// What became of the flags of a Megatron-LM command: the part of an answer that says how much of the job it is about.

#include <cstdint>
#include <string>
#include <vector>

namespace mgplan::formats {

/// What a flag that is not computed leaves open beside the time of a step.
enum class Decides : std::uint8_t {
    nothing,        ///< neither whether the command is legal nor whether it fits
    fit,            ///< the memory of a rank
    legal,          ///< whether Megatron-LM starts, and nothing that it would do
    fit_and_legal,  ///< also rules of its own, which are not checked
    model           ///< the network, so that the count of its parameters is open besides
};

/// A flag that changes memory, time or legality in a way that is not predicted.
struct FlagNotComputed {
    std::string flag;     ///< as the command has it: "--flextron"
    std::string feature;  ///< what it asks for: "Megatron FSDP"
    Decides decides = Decides::fit;

    bool operator==(const FlagNotComputed&) const = default;
};

/// Every flag of a command stands in one of the lists, once.
struct FlagAccount {
    std::vector<std::string> used;              ///< honoured by the prediction
    std::vector<FlagNotComputed> not_computed;  ///< named, and left out of it
    std::vector<std::string> without_effect;    ///< known not to change a prediction: names, paths, learning rates, logging
    /// Not known, with their words up to the next "--" and the name that may have been meant; the first hundred, then "and N more".
    std::vector<std::string> unknown;
    std::vector<std::string> stray;     ///< words that belong to no flag
    std::vector<std::string> searched;  ///< sizes that a search chooses, whatever the command says

    bool operator==(const FlagAccount&) const = default;
};

}  // namespace mgplan::formats
