# Copies the shared libraries that PROGRAMS and MODULES need into FOLDER; with PROGRAM_FOLDER, the programs there and the
# modules into FOLDER too.
set(runtimes "^ld-linux" "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s|atomic|quadmath|gfortran)\\.so" "^lib(cuda|cublas|cudnn|nccl|nv)")
file(GET_RUNTIME_DEPENDENCIES
  EXECUTABLES ${PROGRAMS}
  MODULES ${MODULES}
  RESOLVED_DEPENDENCIES_VAR found
  UNRESOLVED_DEPENDENCIES_VAR missing
  PRE_EXCLUDE_REGEXES ${runtimes})
if(missing)
  message(FATAL_ERROR "not found: ${missing}")
endif()
foreach(library IN LISTS found)
  file(COPY ${library} DESTINATION ${FOLDER} FOLLOW_SYMLINK_CHAIN)
  message(STATUS "beside the programs: ${library}")
endforeach()
if(PROGRAM_FOLDER)
  file(COPY ${PROGRAMS} DESTINATION ${PROGRAM_FOLDER})
  file(COPY ${MODULES} DESTINATION ${FOLDER})
endif()
