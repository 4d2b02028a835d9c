#pragma once
// Reading the weights of a published checkpoint: safetensors files as repositories on the Hugging Face hub hold them.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/training/rank_trainer.hpp"
#include "plan/parameters/published_weights.hpp"
#include "plan/training/numeric_types.hpp"

namespace mgplan::runtime {

/// Immutable; any thread may read.
class PublishedCheckpoint {
public:
    /// `path`: a safetensors file, or a folder with model.safetensors or with a model.safetensors.index.json that names its files. Reads
    /// the headers and compares them with `weights`. Throws ConfigError naming the file and each tensor that is missing, has another shape
    /// or type, or belongs to no parameter.
    static std::shared_ptr<const PublishedCheckpoint> open(const std::string& path, PublishedWeights weights);

    /// Writes the parameters into the main copies among `pieces`, expert biases into theirs, and 0 into moments, histories and padding.
    /// Throws ConfigError naming a value that is not finite, RunError where a file cannot be read.
    void load(std::span<const model::StatePiece> pieces) const;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] const std::vector<std::string>& files() const { return files_; }
    [[nodiscard]] const PublishedWeights& weights() const { return weights_; }

private:
    /// Place of one tensor of weights_ in the files.
    struct Place {
        std::size_t file = 0;
        Dtype dtype = Dtype::fp32;
        std::int64_t at = 0;  ///< first byte in the file
    };
    friend class PublishedReader;

    std::string path_;
    PublishedWeights weights_;
    std::vector<std::string> files_;
    std::vector<Place> places_;  ///< by tensor
};

}  // namespace mgplan::runtime
