#pragma once
// Account of the flags of a Megatron-LM command: the part of an answer that names the flags it covers.

#include <cstdint>
#include <string>
#include <vector>

namespace mgplan::formats {

/// Questions besides the time of a step that a flag leaves open if it is not computed.
enum class Decides : std::uint8_t {
    nothing,        ///< neither whether the command is legal nor whether it fits
    fit,            ///< the memory of a rank
    legal,          ///< the start of Megatron-LM, not the work after it
    fit_and_legal,  ///< also rules of its own, which are not checked
    model           ///< the network, so that the count of its parameters is open besides
};

/// A flag that changes memory, time or legality in a way that is not predicted.
struct FlagNotComputed {
    std::string flag;     ///< as the command has it: "--flextron"
    std::string feature;  ///< the flag's feature: "Megatron FSDP"
    Decides decides = Decides::fit;

    bool operator==(const FlagNotComputed&) const = default;
};

/// Every flag of a command is in one of the lists, once, but for `without_a_version` and `of_environment`.
struct FlagAccount {
    std::vector<std::string> used;              ///< honoured by the prediction
    std::vector<FlagNotComputed> not_computed;  ///< named, and left out of it
    std::vector<std::string> without_effect;    ///< known not to change a prediction: names, paths, learning rates, logging
    /// Not known, with their words up to the next "--" and the name that may have been meant; the first hundred, then "and N more".
    std::vector<std::string> unknown;
    /// Among the others: flags because of which no version of Megatron-LM that is known has all of the command, with those that have each.
    std::vector<std::string> without_a_version;
    /// Rules that the command obeys only if the environment, which it leaves to its launcher, sets a variable; with the way to set it.
    std::vector<std::string> of_environment;
    std::vector<std::string> stray;     ///< words that belong to no flag
    std::vector<std::string> searched;  ///< sizes that a search chooses, whatever the command says

    bool operator==(const FlagAccount&) const = default;
};

}  // namespace mgplan::formats
