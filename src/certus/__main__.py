from certus.cli import main

main()
