#include "plan/training/training_spec.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace mgplan {
namespace {

// Megatron-LM's --fp8-recipe calls current scaling tensorwise.
constexpr std::array kFp8Words{
    std::pair{std::string_view("fp8-delayed"), Fp8Recipe::delayed}, std::pair{std::string_view("fp8-current"), Fp8Recipe::tensorwise},
    std::pair{std::string_view("fp8-blockwise"), Fp8Recipe::blockwise}, std::pair{std::string_view("mxfp8"), Fp8Recipe::mxfp8}};

}  // namespace

std::optional<PrecisionChoice> parse_precision_choice(std::string_view text) {
    if (text == "fp8") text = "fp8-current";
    for (const auto& [word, recipe] : kFp8Words) {
        if (word == text) return PrecisionChoice{Precision::fp8, recipe};
    }
    if (const auto precision = parse_precision(text)) return PrecisionChoice{*precision};
    return std::nullopt;
}

std::vector<std::string> precision_choices() {
    std::vector<std::string> words{"bf16", "fp16", "fp32", "fp64", "fp8"};
    for (const auto& [word, recipe] : kFp8Words) words.emplace_back(word);
    words.emplace_back("nvfp4");
    return words;
}

std::string_view precision_text(const TrainingSpec& training) {
    if (training.precision != Precision::fp8) return to_string(training.precision);
    const auto* found =
        std::find_if(kFp8Words.begin(), kFp8Words.end(), [&](const auto& each) { return each.second == training.megatron.fp8_recipe; });
    return found->first;
}

std::optional<Precision> parse_precision(std::string_view text) {
    for (const Precision precision :
         {Precision::bf16, Precision::fp16, Precision::fp32, Precision::fp64, Precision::fp8, Precision::nvfp4}) {
        if (to_string(precision) == text) return precision;
    }
    return std::nullopt;
}

std::optional<AttentionBackend> parse_attention_backend(std::string_view text) {
    for (const AttentionBackend backend : {AttentionBackend::flash, AttentionBackend::unfused}) {
        if (to_string(backend) == text) return backend;
    }
    return std::nullopt;
}

}  // namespace mgplan
